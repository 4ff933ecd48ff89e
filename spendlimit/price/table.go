package price

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/names"
	"github.com/stint-go/stint/spendlimit"
)

// Table holds the prices of many models. It never changes, so any number of goroutines may use it; a process should
// use one table for all its work (P12). The zero Table knows no model.
type Table struct {
	version  string
	missing  MissingWrite
	models   map[string]*model // by exact name; bad entries too, so that no other rule finds a price for them
	aliases  map[string]string
	cuttable map[string]bool // base names with dated brothers: whether all of them agree with the base
}

// Version identifies the content: a hash of what was read and of every override since, 32 hexadecimal digits.
func (t *Table) Version() string { return t.version }

const versionLen = 32

func versionOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))[:versionLen]
}

// Models returns the exact names that have a price, in byte order, aliases not included.
func (t *Table) Models() []string {
	names := make([]string, 0, len(t.models))
	for name, m := range t.models {
		if m.problem == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// With returns a copy of t in which each override replaces the whole entry of its name, or gives the name as an alias
// (P12). A rate name that nothing uses, a bad rate, or an alias of a name that is no priced model is an error, a
// [Problem] and [spendlimit.ErrInvalid]; then there is no new table. t itself never changes.
func (t *Table) With(overrides map[string]Entry) (*Table, error) {
	if len(overrides) == 0 {
		return t, nil
	}
	next := &Table{missing: t.missing, models: make(map[string]*model), aliases: make(map[string]string)}
	maps.Copy(next.models, t.models)
	maps.Copy(next.aliases, t.aliases)
	content := []string{t.version}
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		text, problem := next.override(name, overrides[name])
		if problem != nil {
			return nil, fmt.Errorf("price: with: %w", *problem)
		}
		content = append(content, text)
	}
	for _, name := range slices.Sorted(maps.Keys(next.aliases)) {
		if m := next.models[next.aliases[name]]; m == nil || m.problem != nil {
			return nil, fmt.Errorf("price: with: %w", Problem{Model: name, Field: "alias",
				Reason: fmt.Sprintf("%q is not a priced model of the table", clip(next.aliases[name]))})
		}
	}
	next.version = versionOf(content...)
	next.index()
	return next, nil
}

// override puts one entry into a table that is being made, and returns its content for the version.
func (t *Table) override(name string, e Entry) (string, *Problem) {
	m, problem := compile(name, e, t.missing)
	if problem != nil {
		return "", problem
	}
	for _, field := range slices.Sorted(maps.Keys(e.Rates)) {
		if !isUsed(canonicalName(field)) {
			return "", &Problem{Model: name, Field: field, Reason: "no usage has this rate"}
		}
	}
	delete(t.models, name)
	delete(t.aliases, name)
	if e.Alias == "" {
		t.models[name] = m
		return m.body, nil
	}
	if e.Provider != "" || e.MaxOutput != 0 || len(e.Rates) > 0 {
		return "", &Problem{Model: name, Field: "alias", Reason: "an alias has nothing of its own"}
	}
	t.aliases[name] = e.Alias
	return name + "\x00" + e.Alias, nil
}

// index finds the names whose date may be cut off (P9).
func (t *Table) index() {
	t.cuttable = make(map[string]bool)
	for name, m := range t.models {
		base, ok := cutDate(name)
		if b := t.models[base]; ok && b != nil {
			agreed, seen := t.cuttable[base]
			t.cuttable[base] = (agreed || !seen) && m.agrees(b)
		}
	}
}

// How says by which rule of P9 a name was found.
type How uint8

const (
	_        How = iota
	Exact        // byte for byte
	Alias        // an alias set by With
	Provider     // "provider/name", and the provider serves the model
	DateForm     // "name@20250929" is in the table as "name-20250929"
	DateCut      // the date was cut off; no dated release of the model is known to have other rates
)

func (h How) String() string {
	switch h {
	case Exact:
		return "exact"
	case Alias:
		return "alias"
	case Provider:
		return "provider"
	case DateForm:
		return "date form"
	case DateCut:
		return "date cut"
	}
	return "none"
}

// Match says which entry of the table a name led to.
type Match struct {
	Model string
	How   How
}

// UnpricedError says what has no price. It is a [spendlimit.ErrUnpriced].
type UnpricedError struct {
	Model  string   // as asked for, at most 256 bytes of it
	Tried  []string // the names that were looked up, in order: models for Find, rates for Cost and Bound
	Reason string
}

func (e *UnpricedError) Error() string {
	msg := fmt.Sprintf("unpriced: model %q: %s", e.Model, e.Reason)
	if len(e.Tried) > 1 {
		msg += fmt.Sprintf(" (tried %q)", e.Tried)
	}
	return msg
}

func (e *UnpricedError) Unwrap() error { return spendlimit.ErrUnpriced }

// Find returns the price of a model. Names are compared byte for byte; the few other rules are those of [How], tried
// in their order, one of them once. There is no folding, no prefix and no nearest name: any other name, and one whose
// entry is bad, is an *[UnpricedError].
func (t *Table) Find(name string) (Price, Match, error) {
	if m, ok := t.models[name]; ok && m.problem == nil { // the hot path
		return Price{m, t.version}, Match{name, Exact}, nil
	}
	m, how, e := t.find(name)
	if e == nil && m.problem != nil {
		e = &UnpricedError{Tried: []string{m.name}, Reason: "its entry is bad: " + m.problem.where()}
	}
	if e != nil {
		e.Model = clip(name)
		return Price{}, Match{}, fmt.Errorf("price: find: %w", e)
	}
	return Price{m, t.version}, Match{m.name, how}, nil
}

// find walks the rules of P9.
func (t *Table) find(name string) (*model, How, *UnpricedError) {
	e := &UnpricedError{Tried: []string{clip(name)}, Reason: "not in the table"}
	if m, ok := t.models[name]; ok {
		return m, Exact, nil
	}
	if target, ok := t.aliases[name]; ok {
		return t.models[target], Alias, nil
	}
	if provider, rest, ok := strings.Cut(name, "/"); ok {
		if m, ok := t.models[rest]; ok && m.servedBy(provider) {
			return m, Provider, nil
		}
		e.Tried = append(e.Tried, clip(rest))
	}
	base, ok := cutDate(name)
	if !ok {
		return nil, 0, e
	}
	if date, ok := strings.CutPrefix(name[len(base):], "@"); ok {
		dashed := base + "-" + date
		if m, ok := t.models[dashed]; ok {
			return m, DateForm, nil
		}
		e.Tried = append(e.Tried, clip(dashed))
	}
	if m, ok := t.models[base]; ok {
		if agreed, dated := t.cuttable[base]; agreed || !dated || m.problem != nil {
			return m, DateCut, nil
		}
		e.Reason = "not in the table, and another dated release has other rates than the undated model"
	}
	e.Tried = append(e.Tried, clip(base))
	return nil, 0, e
}

// cutDate splits a calendar date, -YYYYMMDD, -YYYY-MM-DD or @YYYYMMDD, from the end of a name.
func cutDate(name string) (base string, ok bool) {
	for _, form := range []string{"-20060102", "-2006-01-02", "@20060102"} {
		i := len(name) - len(form)
		if i < 1 {
			continue
		}
		if _, err := time.Parse(form, name[i:]); err == nil {
			return name[:i], true
		}
	}
	return "", false
}

// clip bounds what a caller's text adds to an error.
func clip(s string) string { return s[:min(len(s), names.Max)] }
