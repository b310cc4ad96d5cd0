/* What a Windows program gets: with arguments, appends its command line, a NUL, the text of the file
   that its last argument names (if there is one) and a record separator to the file ARGV_LOG.
   Without arguments, runs the command line in the file LAUNCH, as PowerShell's CreateProcess does. */
#include <windows.h>
#include <stdio.h>
#include <stdlib.h>

static void put(FILE *log, const wchar_t *text) {
  int length = WideCharToMultiByte(CP_UTF8, 0, text, -1, NULL, 0, NULL, NULL);
  char *bytes = malloc(length);
  WideCharToMultiByte(CP_UTF8, 0, text, -1, bytes, length, NULL, NULL);
  fwrite(bytes, 1, length, log);
  free(bytes);
}

static wchar_t *read_text(const wchar_t *path) {
  static char bytes[1 << 20];
  static wchar_t text[1 << 20];
  FILE *file = _wfopen(path, L"rb");
  if (file == NULL) return NULL;
  size_t length = fread(bytes, 1, sizeof bytes - 1, file);
  fclose(file);
  bytes[length] = 0;
  MultiByteToWideChar(CP_UTF8, 0, bytes, -1, text, 1 << 20);
  return text;
}

int main(int count, char **words) {
  wchar_t path[4096];
  if (count == 1) {
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION child;
    GetEnvironmentVariableW(L"LAUNCH", path, 4096);
    if (!CreateProcessW(NULL, read_text(path), NULL, NULL, TRUE, 0, NULL, NULL, &start, &child))
      return 1;
    WaitForSingleObject(child.hProcess, INFINITE);
    return 0;
  }
  GetEnvironmentVariableW(L"ARGV_LOG", path, 4096);
  FILE *log = _wfopen(path, L"ab");
  put(log, GetCommandLineW());
  wchar_t last[4096];
  MultiByteToWideChar(CP_ACP, 0, words[count - 1], -1, last, 4096);
  wchar_t *text = read_text(last);
  put(log, text == NULL ? L"" : text);
  fwrite("\x1e", 1, 1, log);
  fclose(log);
  return 0;
}
