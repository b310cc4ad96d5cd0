// Reads what our writers write with the parsers of those who will read it.
//
//	check FILE.tf    fails unless HashiCorp's parser takes it, formatted as `terraform fmt` does
//	check FILE.yaml  prints one line of JSON for each document, as Kubernetes converts it
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

func main() {
	path := os.Args[1]
	text, err := os.ReadFile(path)
	if err == nil && strings.HasSuffix(path, ".tf") {
		err = checkTerraform(path, text)
	} else if err == nil {
		err = printDocuments(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func checkTerraform(path string, text []byte) error {
	if _, diagnostics := hclsyntax.ParseConfig(text, path, hcl.InitialPos); diagnostics.HasErrors() {
		return diagnostics
	}
	if !bytes.Equal(hclwrite.Format(text), text) {
		return errors.New("terraform fmt would change it")
	}
	return nil
}

func printDocuments(text []byte) error {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var object map[string]any
		if err := yaml.UnmarshalStrict(document, &object); err != nil {
			return err
		}
		line, err := json.Marshal(object)
		if err != nil {
			return err
		}
		fmt.Println(string(line))
	}
}
