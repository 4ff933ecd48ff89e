package price

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/shopspring/decimal"
)

// document walks over checked JSON, refusing names that come twice at any depth.
type document struct {
	data    []byte
	dec     *json.Decoder
	counted int64 // bytes whose line ends are in lines
	lines   int
}

// line is where the walk is. It counts on from the last call, so all calls together read the input once.
func (d *document) line() int {
	at := d.dec.InputOffset()
	d.lines += bytes.Count(d.data[d.counted:at], []byte{'\n'})
	d.counted = at
	return d.lines + 1
}

// object gives the members of the object that was just entered to member, which must walk over the whole value.
// model is the entry that the object is in, "" for the object of models itself.
func (d *document) object(model string, member func(name string, value json.Token) error) error {
	seen := make(map[string]bool)
	for d.dec.More() {
		token, err := d.dec.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string) // of good JSON
		switch {
		case seen[name] && model == "":
			return Problem{Line: d.line(), Model: name, Reason: "listed twice"}
		case seen[name]:
			return Problem{Line: d.line(), Model: model, Field: name, Reason: "given twice"}
		}
		seen[name] = true
		value, err := d.dec.Token()
		if err != nil {
			return err
		}
		if err := member(name, value); err != nil {
			return err
		}
	}
	_, err := d.dec.Token()
	return err
}

// skip walks over the rest of a value whose first token was read.
func (d *document) skip(model string, value json.Token) error {
	switch value {
	case json.Delim('{'):
		return d.object(model, func(_ string, v json.Token) error { return d.skip(model, v) })
	case json.Delim('['):
		for d.dec.More() {
			v, err := d.dec.Token()
			if err != nil {
				return err
			}
			if err := d.skip(model, v); err != nil {
				return err
			}
		}
		_, err := d.dec.Token()
		return err
	}
	return nil
}

// model reads one entry. A bad one is a model with a problem; an error is a bad document.
func (d *document) model(name string, value json.Token, missing MissingWrite) (*model, error) {
	line, start := d.line(), d.dec.InputOffset()-1
	if value != json.Delim('{') {
		p := &Problem{Line: line, Model: name, Reason: "want an object of fields"}
		return &model{name: name, problem: p}, d.skip(name, value)
	}
	f := fields{document: d, model: name, rates: make(map[string]decimal.Decimal)}
	if err := d.object(name, f.field); err != nil {
		return nil, err
	}
	m, problem := (*model)(nil), f.problem
	if problem == nil {
		m, problem = compile(name, f.entry(), missing)
	}
	if problem != nil {
		if problem.Line == 0 {
			problem.Line = line
		}
		return &model{name: name, problem: problem}, nil
	}
	m.raw = d.data[start:d.dec.InputOffset()]
	return m, nil
}

// fields gathers what the package uses of one entry.
type fields struct {
	*document
	model     string
	provider  string
	maxOutput int64
	maxTokens int64
	rates     map[string]decimal.Decimal
	problem   *Problem // the first one
}

func (f *fields) entry() Entry {
	e := Entry{Provider: f.provider, MaxOutput: f.maxOutput, Rates: f.rates}
	if e.MaxOutput == 0 {
		e.MaxOutput = f.maxTokens // P10
	}
	return e
}

// field takes one field and walks over its value.
func (f *fields) field(name string, value json.Token) error {
	switch {
	case name == "litellm_provider":
		f.provider, _ = value.(string)
	case name == "max_output_tokens":
		f.maxOutput = tokens(value)
	case name == "max_tokens":
		f.maxTokens = tokens(value)
	case (name == searchField || name == modifierField) && value == json.Delim('{'):
		return f.object(f.model, func(inner string, value json.Token) error {
			f.rate(name+"."+inner, value)
			return f.skip(f.model, value)
		})
	case strings.HasPrefix(name, regionPrefix) || strings.Contains(name, "cost"):
		f.rate(name, value)
	}
	return f.skip(f.model, value)
}

// rate takes a number, or text that is one (P1). Anything else is a problem, but for a multiplier, which then counts as
// absent: only who asks for it finds no price (P5).
func (f *fields) rate(name string, value json.Token) {
	var text string
	switch v := value.(type) {
	case json.Number:
		text = v.String()
	case string:
		text = v
	default:
		if !isMultiplier(name) {
			f.bad(name, "not a number")
		}
		return
	}
	d, err := parseRate(text)
	if _, twice := f.rates[name]; twice {
		f.bad(name, "given twice, flat and nested")
	} else if err != nil {
		f.bad(name, err.Error())
	}
	f.rates[name] = d
}

func (f *fields) bad(name, reason string) {
	if f.problem == nil {
		f.problem = &Problem{Line: f.line(), Model: f.model, Field: name, Reason: reason}
	}
}

// tokens reads a count. Text, and numbers that are no possible count, are absent (P1): 0.
func tokens(value json.Token) int64 {
	text, ok := value.(json.Number)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(text.String(), 10, 64)
	if err != nil || n < 0 || n > maxCount {
		return 0
	}
	return n
}
