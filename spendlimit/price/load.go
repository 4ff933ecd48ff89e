package price

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/stint-go/stint/spendlimit"
)

const (
	maxInput  = 32 << 20 // bytes
	maxModels = 50_000
	sample    = "sample_spec" // the file's own documentation, written as an entry
)

// Problem says what is wrong with a price file or an override, and where. As an error it is a [spendlimit.ErrInvalid].
type Problem struct {
	Line   int    // of the file, from 1; 0 when it came from With
	Model  string // "" when it is not about one model
	Field  string // "" when it is not about one field
	Reason string
}

// Error is one line such as: line 12: model "x": input_cost_per_token: -1 is negative.
func (p Problem) Error() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", p.Line)
	}
	if p.Model != "" {
		fmt.Fprintf(&b, "model %q: ", clip(p.Model))
	}
	return b.String() + p.where()
}

func (p Problem) where() string {
	if p.Field == "" {
		return p.Reason
	}
	return clip(p.Field) + ": " + p.Reason
}

// Unwrap makes it an ErrInvalid.
func (p Problem) Unwrap() error { return spendlimit.ErrInvalid }

// Config says what a table does where the file is silent. The zero value is what [Load] uses.
type Config struct {
	MissingWrite MissingWrite
}

// Load reads the public LiteLLM price file, an object of model names and their fields, with every number taken as
// text (P1). It reads at most 32 MiB and 50,000 models.
//
// An entry with a bad rate leaves that model alone without a price and is reported as a [Problem]. Bad JSON, a model
// that is listed twice or a field that is given twice is an error, also a Problem: such a file says nothing reliable.
func Load(r io.Reader) (*Table, []Problem, error) { return Config{}.Load(r) }

// Load is the package's [Load] under c.
func (c Config) Load(r io.Reader) (*Table, []Problem, error) {
	if c.MissingWrite != "" && c.MissingWrite != InputRate {
		return nil, nil, fmt.Errorf("price: load: %w", &spendlimit.InvalidError{Field: "MissingWrite", Reason: "unknown rule"})
	}
	data, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return nil, nil, fmt.Errorf("price: load: %w", err)
	}
	t := &Table{
		version: versionOf(string(data)), missing: c.MissingWrite,
		models: make(map[string]*model), aliases: make(map[string]string),
	}
	problems, err := t.read(data)
	if err != nil {
		return nil, nil, fmt.Errorf("price: load: %w", err)
	}
	t.index()
	return t, problems, nil
}

// read fills t with the models of data.
func (t *Table) read(data []byte) ([]Problem, error) {
	if err := checkSyntax(data); err != nil {
		return nil, err
	}
	d := &document{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	d.dec.UseNumber()
	if first, err := d.dec.Token(); err != nil || first != json.Delim('{') {
		return nil, Problem{Line: 1, Reason: "want a JSON object of models"}
	}
	var problems []Problem
	err := d.object("", func(name string, value json.Token) error {
		if name == sample {
			return d.skip(name, value)
		}
		if len(t.models) == maxModels {
			return Problem{Line: d.line(), Reason: fmt.Sprintf("more than %d models", maxModels)}
		}
		m, err := d.model(name, value, t.missing)
		if err != nil {
			return err
		}
		t.models[name] = m
		if m.problem != nil {
			problems = append(problems, *m.problem)
		}
		return nil
	})
	return problems, err
}

// checkSyntax reads all of data once, so that what walks over it later meets only good JSON.
func checkSyntax(data []byte) error {
	if len(data) > maxInput {
		return Problem{Reason: fmt.Sprintf("more than %d MiB", maxInput>>20)}
	}
	if !utf8.Valid(data) {
		return Problem{Line: lineAt(data, firstInvalid(data)), Reason: "not valid UTF-8"}
	}
	var whole json.RawMessage
	err := json.Unmarshal(data, &whole)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return Problem{Line: lineAt(data, syntax.Offset), Reason: "bad JSON: " + syntax.Error()}
	case err != nil:
		return Problem{Reason: "bad JSON: " + err.Error()}
	}
	return nil
}

// firstInvalid is the offset of the first byte that is not UTF-8.
func firstInvalid(data []byte) int64 {
	at := 0
	for at < len(data) {
		r, n := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	return int64(at)
}

func lineAt(data []byte, offset int64) int { return 1 + bytes.Count(data[:offset], []byte{'\n'}) }
