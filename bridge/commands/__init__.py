"""Commands that work on any Service Bus namespace: Azure's, the emulator's or a bridge's.

A command is a module with two functions: `register(commands)` adds its parser and imports no
package of an extra; `run(arguments, output)` is a coroutine that returns the exit code.
"""
