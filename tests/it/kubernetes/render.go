// Renders charts/tidegate as Helm does: with Go's text/template and Sprig, and with those functions of Helm that the chart
// uses. Reads a request as JSON from standard input, and writes the Kubernetes objects as a JSON array. The libraries are
// those of Debian: see `go` in scripts/setup.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

type object = map[string]interface{}

// request is what the tests ask for: a chart with values, or files of plain YAML.
type request struct {
	Chart   string   // the directory of the chart
	Values  string   // YAML that is merged into values.yaml
	Release object   // .Release
	Secret  object   // the Secret that `lookup` finds, if any
	Files   []string // files without templates, instead of a chart
}

func main() {
	var asked request
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		fail(err)
	}
	texts, err := asked.texts()
	if err != nil {
		fail(err)
	}
	objects := []object{}
	for _, text := range texts {
		for _, document := range strings.Split("\n"+text, "\n---") {
			found := object{}
			// Strict: a key that is given twice is an error.
			if err := yaml.UnmarshalStrict([]byte(document+"\n"), &found); err != nil {
				fail(fmt.Errorf("%w in:\n%s", err, document))
			}
			if len(found) > 0 {
				objects = append(objects, found)
			}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(objects); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// texts returns the YAML documents, and NOTES.txt as an object of the kind Notes.
func (asked request) texts() ([]string, error) {
	var texts []string
	for _, file := range asked.Files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		texts = append(texts, string(text))
	}
	if asked.Chart == "" {
		return texts, nil
	}
	chart, values := object{}, object{}
	if err := read(filepath.Join(asked.Chart, "Chart.yaml"), &chart); err != nil {
		return nil, err
	}
	if err := read(filepath.Join(asked.Chart, "values.yaml"), &values); err != nil {
		return nil, err
	}
	given := object{}
	if err := yaml.UnmarshalStrict([]byte(asked.Values), &given); err != nil {
		return nil, err
	}
	merge(values, given)
	// In .Chart the keys begin with a capital letter.
	metadata := object{"Name": chart["name"], "Version": chart["version"], "AppVersion": chart["appVersion"]}
	data := object{"Values": values, "Chart": metadata, "Release": asked.Release, "Files": files(asked.Chart)}
	return asked.render(data)
}

// files is the directory of a chart.
type files string

// Get returns the text of a file of the chart.
func (chart files) Get(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(string(chart), name))
	return string(text), err
}

func read(file string, into *object) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return yaml.UnmarshalStrict(text, into)
}

// merge puts values over defaults: tables are merged, and null removes a key.
func merge(defaults, values object) {
	for key, value := range values {
		table, isTable := value.(object)
		below, hasTable := defaults[key].(object)
		switch {
		case value == nil:
			delete(defaults, key)
		case isTable && hasTable:
			merge(below, table)
		default:
			defaults[key] = value
		}
	}
}

func (asked request) render(data object) ([]string, error) {
	all := template.New("chart").Option("missingkey=zero")
	all.Funcs(sprig.TxtFuncMap()).Funcs(template.FuncMap{
		"include": func(name string, data interface{}) (string, error) {
			return executed(all.Lookup(name), data)
		},
		"tpl": func(text string, data interface{}) (string, error) {
			copied, err := all.Clone()
			if err != nil {
				return "", err
			}
			parsed, err := copied.New("tpl").Parse(text)
			if err != nil {
				return "", err
			}
			return executed(parsed, data)
		},
		"required": func(message string, value interface{}) (interface{}, error) {
			if value == nil || value == "" {
				return nil, errors.New(message)
			}
			return value, nil
		},
		"toYaml": func(value interface{}) (string, error) {
			text, err := yaml.Marshal(value)
			return strings.TrimSuffix(string(text), "\n"), err
		},
		"lookup": func(_, _, _, _ string) object { return asked.Secret },
	})
	files, err := filepath.Glob(filepath.Join(asked.Chart, "templates", "*"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if _, err := all.New(filepath.Base(file)).Parse(string(text)); err != nil {
			return nil, err
		}
	}
	var texts []string
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasPrefix(name, "_") {
			continue
		}
		text, err := executed(all.Lookup(name), data)
		if err != nil {
			return nil, err
		}
		if name == "NOTES.txt" {
			notes, err := yaml.Marshal(object{"kind": "Notes", "text": text})
			if err != nil {
				return nil, err
			}
			text = string(notes)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// executed runs a template. Helm writes nothing for a missing value, which is a mistake in most places; here it is an error.
func executed(parsed *template.Template, data interface{}) (string, error) {
	if parsed == nil {
		return "", errors.New("no template of that name")
	}
	var text bytes.Buffer
	if err := parsed.Execute(&text, data); err != nil {
		return "", err
	}
	if strings.Contains(text.String(), "<no value>") {
		return "", fmt.Errorf("%s has a missing value:\n%s", parsed.Name(), text.String())
	}
	return text.String(), nil
}
