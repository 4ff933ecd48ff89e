package stint_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/stint-go/stint"

// core is what a core package, with the packages below it, may import besides the standard library, internal/… and itself.
type core struct {
	libraries []string
	cores     []string // packages of other cores
	banned    []string // of the standard library
}

func cores() map[string]core {
	noHTTP := []string{"database/sql", "net/http"}
	return map[string]core{
		"spendlimit":  {libraries: []string{"github.com/shopspring/decimal"}, banned: noHTTP},
		"allocator":   {banned: noHTTP},
		"gate":        {libraries: []string{"golang.org/x/text"}, cores: []string{"audit/ledger"}, banned: noHTTP},
		"audit":       {libraries: []string{"github.com/gowebpki/jcs", "golang.org/x/mod/sumdb"}, banned: noHTTP},
		"credentials": {cores: []string{"audit/ledger"}, banned: []string{"database/sql"}},
	}
}

// decisions are the names of the files in cores that decide: no clock, randomness, I/O or goroutine.
func decisions() []string {
	return []string{"core*.go", "evaluate.go", "transitions.go", "policy.go"}
}

func impure() []string {
	return []string{"context", "crypto/rand", "io", "log", "math/rand", "net", "os", "runtime", "sync", "syscall", "unsafe"}
}

// clock is what a decision must not use of package time.
func clock() []string {
	return []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}
}

func TestTree(t *testing.T) {
	t.Parallel()
	files, err := tree(".")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(files, func(f file) bool { return f.path == "spendlimit/core.go" && f.decides() }) {
		t.Fatal("spendlimit/core.go is not among the files")
	}
	for _, complaint := range check(files) {
		t.Error(complaint)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	const (
		adapter = `package x; import _ "github.com/stint-go/stint/adapters/memory"`
		kit     = `package x; import _ "github.com/stint-go/stint/spendlimit/spendlimittest"`
		testdb  = `package x; import _ "github.com/stint-go/stint/internal/testdb"`
	)
	tests := []struct {
		name  string
		files map[string]string
		want  string // "" is no complaint
	}{
		{"core, adapter", map[string]string{"gate/a.go": adapter}, "gate/a.go: imports github.com/stint-go/stint/adapters/memory"},
		{"core below, adapter", map[string]string{"spendlimit/price/a.go": adapter}, "imports github.com/stint-go/stint/adapters/memory"},
		{"adapter in a test", map[string]string{"gate/a_test.go": adapter}, ""},
		{"adapter, core", map[string]string{"adapters/memory/a.go": `package x; import _ "github.com/stint-go/stint/gate"`}, ""},
		{"core, sql", map[string]string{"credentials/a.go": `package x; import _ "database/sql"`}, "imports database/sql"},
		{"core, sql driver", map[string]string{"audit/a.go": `package x; import _ "database/sql/driver"`}, "imports database/sql/driver"},
		{"core, http", map[string]string{"allocator/a.go": `package x; import _ "net/http"`}, "imports net/http"},
		{"credentials, http", map[string]string{"credentials/a.go": `package x; import _ "net/http"`}, ""},
		{"through internal", map[string]string{
			"audit/a.go":      `package x; import _ "github.com/stint-go/stint/internal/a"`,
			"internal/a/a.go": `package x; import _ "github.com/stint-go/stint/internal/b"`,
			"internal/b/b.go": `package x; import _ "net/http"`,
		}, "internal/b/b.go: imports net/http"},
		{"internal alone", map[string]string{"internal/b/b.go": `package x; import _ "net/http"`}, ""},
		{"core, core", map[string]string{"allocator/a.go": `package x; import _ "github.com/stint-go/stint/spendlimit"`}, "imports github.com/stint-go/stint/spendlimit"},
		{"gate, audit", map[string]string{"gate/a.go": `package x; import _ "github.com/stint-go/stint/audit"`}, "imports github.com/stint-go/stint/audit"},
		{"gate, audit/ledger", map[string]string{"gate/a.go": `package x; import _ "github.com/stint-go/stint/audit/ledger"`}, ""},
		{"core, itself", map[string]string{"spendlimit/price/a.go": `package x; import _ "github.com/stint-go/stint/spendlimit"`}, ""},
		{"named like itself", map[string]string{"gate/a.go": `package x; import _ "github.com/stint-go/stint/gates"`}, "imports github.com/stint-go/stint/gates"},
		{"library", map[string]string{"spendlimit/a.go": `package x; import _ "github.com/shopspring/decimal"`}, ""},
		{"another's library", map[string]string{"gate/a.go": `package x; import _ "github.com/shopspring/decimal"`}, "imports github.com/shopspring/decimal"},
		{"named like a library", map[string]string{"gate/a.go": `package x; import _ "golang.org/x/textual"`}, "imports golang.org/x/textual"},
		{"kit", map[string]string{"internal/a/a.go": kit}, "imports github.com/stint-go/stint/spendlimit/spendlimittest"},
		{"kit in a test", map[string]string{"adapters/memory/a_test.go": kit}, ""},
		{"kit, library", map[string]string{"gate/gatetest/a.go": `package x; import _ "pgregory.net/rapid"`}, ""},
		{"kit, adapter", map[string]string{"gate/gatetest/a.go": adapter}, "imports github.com/stint-go/stint/adapters/memory"},
		{"throwaway database", map[string]string{"internal/a/a.go": testdb}, "imports github.com/stint-go/stint/internal/testdb"},
		{"throwaway database in the benchmark", map[string]string{"internal/bench/ratios/a.go": testdb}, ""},
		{"throwaway database beside the benchmark", map[string]string{"internal/bench/a.go": testdb}, "imports github.com/stint-go/stint/internal/testdb"},
		{"throwaway database in a test", map[string]string{"adapters/postgres/a_test.go": testdb}, ""},
		{"example", map[string]string{"internal/a/a.go": `package x; import _ "github.com/stint-go/stint/examples/replay"`}, "imports github.com/stint-go/stint/examples/replay"},

		{"clock", map[string]string{"spendlimit/core_x.go": `package x; import "time"; func f() time.Time { return time.Now() }`}, "uses time.Now"},
		{"clock as a value", map[string]string{"allocator/core.go": `package x; import "time"; var f = time.Since`}, "uses time.Since"},
		{"clock by another name", map[string]string{"gate/evaluate.go": `package x; import c "time"; var f = c.Now`}, "uses time.Now"},
		{"clock outside", map[string]string{"spendlimit/wait.go": `package x; import "time"; var f = time.Now`}, ""},
		{"clock in an adapter", map[string]string{"adapters/a/core.go": `package x; import "time"; var f = time.Now`}, ""},
		{"another clock", map[string]string{"spendlimit/core.go": `package x; func f(c interface{ Now() int }) int { return c.Now() }`}, ""},
		{"time without a clock", map[string]string{"spendlimit/core.go": `package x; import "time"; var f = time.Unix`}, ""},
		{"randomness", map[string]string{"spendlimit/core.go": `package x; import _ "math/rand/v2"`}, "imports math/rand/v2"},
		{"lock", map[string]string{"spendlimit/core.go": `package x; import _ "sync"`}, "imports sync"},
		{"context", map[string]string{"spendlimit/core.go": `package x; import _ "context"`}, "imports context"},
		{"environment", map[string]string{"spendlimit/core.go": `package x; import _ "os"`}, "imports os"},
		{"goroutine", map[string]string{"spendlimit/core.go": `package x; func f() { go f() }`}, "starts a goroutine"},

		{"float parameter", map[string]string{"internal/a/a.go": `package x; func F(a int, b float64) {}`}, "float64"},
		{"float result of a method", map[string]string{"adapters/a/a.go": `package x; type T int; func (T) F() float32 { return 0 }`}, "float32"},
		{"float result of a generic method", map[string]string{"internal/a/a.go": `package x; type T[N any] int; func (*T[N]) F() float64 { return 0 }`}, "float64"},
		{"float field", map[string]string{"internal/a/a.go": `package x; type T struct{ A []float64 }`}, "float64"},
		{"float variable", map[string]string{"internal/a/a.go": `package x; var A float64`}, "float64"},
		{"float constant", map[string]string{"internal/a/a.go": `package x; const A = float64(1)`}, "float64"},
		{"float inside", map[string]string{"internal/a/a.go": `package x; type t int; func (t) F() float64 { return 0 }; func f() float64 { return float64(1) }`}, ""},
		{"float in a row", map[string]string{"gate/a.go": `package x; type row struct{ a float64 }`}, "float64"},
		{"float in a core's test", map[string]string{"gate/a_test.go": `package x; func f() { _ = float64(1) }`}, "float64"},
		{"float in a broken store", map[string]string{"gate/gatetest/broken_test.go": `package x; func f() { _ = float64(1) }`}, ""},
		{"float in another test", map[string]string{"internal/a/a_test.go": `package x; func F() float64 { return 1 }`}, ""},
		{"float in an example", map[string]string{"examples/a/a.go": `package x; func F() float64 { return 1 }`}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var files []file
			for name, text := range test.files {
				f, err := parse(name, text)
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, f)
			}
			got := check(files)
			switch {
			case test.want == "" && len(got) > 0:
				t.Errorf("complaints about what is right: %q", got)
			case test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)):
				t.Errorf("complaints %q, want one with %q", got, test.want)
			}
		})
	}
}

// file is one source file, by its path from the root of the module.
type file struct {
	path   string
	syntax *ast.File
	lines  *token.FileSet
}

func parse(name string, text any) (file, error) {
	lines := token.NewFileSet()
	syntax, err := parser.ParseFile(lines, name, text, parser.SkipObjectResolution)
	return file{filepath.ToSlash(name), syntax, lines}, err
}

// tree parses every file of the module, whatever system it is for.
func tree(root string) (files []file, err error) {
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root && foreign(name):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}
		f, err := parse(name, nil)
		files = append(files, f)
		return err
	})
	return files, err
}

// foreign tells whether a directory is not of this module's packages.
func foreign(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	name := filepath.Base(dir)
	return err == nil || name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

func (f file) pkg() string  { return path.Dir(f.path) }
func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// top is the first element of a path.
func top(name string) string {
	first, _, _ := strings.Cut(name, "/")
	return first
}

func (f file) inCore() bool {
	_, ok := cores()[top(f.path)]
	return ok
}

func (f file) decides() bool {
	return f.inCore() && !f.isTest() && slices.ContainsFunc(decisions(), func(pattern string) bool {
		ok, _ := path.Match(pattern, path.Base(f.path))
		return ok
	})
}

// imports lists what the file imports.
func (f file) imports() []string {
	var list []string
	for _, i := range f.syntax.Imports {
		name, _ := strconv.Unquote(i.Path.Value)
		list = append(list, name)
	}
	return list
}

// within tells whether a path is one of the parents or below one.
func within(name string, parents []string) bool {
	return slices.ContainsFunc(parents, func(p string) bool { return name == p || strings.HasPrefix(name, p+"/") })
}

type complainFunc = func(f file, format string, args ...any)

// check returns what breaks the rules.
func check(files []file) []string {
	var complaints []string
	complain := func(f file, format string, args ...any) {
		complaints = append(complaints, f.path+": "+fmt.Sprintf(format, args...))
	}
	packages := map[string][]file{} // without tests
	for _, f := range files {
		if !f.isTest() {
			packages[f.pkg()] = append(packages[f.pkg()], f)
			f.checkUse(complain)
		}
		if f.decides() {
			f.checkPurity(complain)
		}
		f.checkFloats(complain)
	}
	for name, c := range cores() {
		c.checkImports(name, packages, complain)
	}
	slices.Sort(complaints)
	return slices.Compact(complaints)
}

// checkUse: only tests use the kits for tests, and nothing uses an example. The benchmark program may have a throwaway
// database too.
func (f file) checkUse(complain complainFunc) {
	for _, i := range f.imports() {
		pkg, ours := strings.CutPrefix(i, module+"/")
		if pkg == "internal/testdb" && path.Dir(f.path) == "internal/bench/ratios" {
			continue
		}
		if ours && (isKit(pkg) || top(pkg) == "examples" && top(f.path) != "examples") {
			complain(f, "imports %s", i)
		}
	}
}

func isKit(pkg string) bool { return strings.HasSuffix(pkg, "test") || pkg == "internal/testdb" }

// checkImports looks at a core's packages, and at the internal ones that they use, on and on.
func (c core) checkImports(name string, packages map[string][]file, complain complainFunc) {
	seen := map[string]bool{}
	var visit func(pkg string)
	visit = func(pkg string) {
		if seen[pkg] {
			return
		}
		seen[pkg] = true
		for _, f := range packages[pkg] {
			for _, i := range f.imports() {
				if !c.allows(name, i, isKit(pkg)) {
					complain(f, "imports %s", i)
				}
				if next, ours := strings.CutPrefix(i, module+"/"); ours && top(next) == "internal" {
					visit(next)
				}
			}
		}
	}
	for pkg := range packages {
		if top(pkg) == name {
			visit(pkg)
		}
	}
}

// allows tells whether the core of this name may import i. A kit for its tests may use any library.
func (c core) allows(name, i string, kit bool) bool {
	pkg, ours := strings.CutPrefix(i, module+"/")
	switch {
	case ours:
		return top(pkg) == name || top(pkg) == "internal" || within(pkg, c.cores)
	case strings.Contains(top(i), "."):
		return kit || within(i, c.libraries)
	}
	return !within(i, c.banned)
}

func (f file) checkPurity(complain complainFunc) {
	for _, i := range f.imports() {
		if within(i, impure()) {
			complain(f, "imports %s", i)
		}
	}
	time := f.nameOf("time")
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			complain(f, "starts a goroutine")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == time && slices.Contains(clock(), n.Sel.Name) {
				complain(f, "uses time.%s", n.Sel.Name)
			}
		}
		return true
	})
}

// nameOf is the name under which the file knows a package of the standard library.
func (f file) nameOf(pkg string) string {
	for _, i := range f.syntax.Imports {
		if i.Path.Value == strconv.Quote(pkg) && i.Name != nil {
			return i.Name.Name
		}
	}
	return pkg
}

// checkFloats: money is never a float. Exported declarations have none anywhere but in examples; cores have none in rows
// and tests either.
func (f file) checkFloats(complain complainFunc) {
	ban := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if x, ok := n.(*ast.Ident); ok && (x.Name == "float64" || x.Name == "float32") {
				complain(f, "has a %s in line %d", x.Name, f.lines.Position(x.Pos()).Line)
			}
			return true
		})
	}
	switch {
	case f.isTest() && f.inCore() && path.Base(f.path) == "broken_test.go": // stores that a suite must find to be broken
	case f.isTest() && f.inCore():
		ban(f.syntax)
	case f.isTest() || top(f.path) == "examples":
	default:
		for _, d := range f.syntax.Decls {
			for _, n := range declared(d, f.inCore()) {
				ban(n)
			}
		}
	}
}

// declared returns the exported parts of a declaration: signatures, types, variables and constants. With rows it returns
// all types.
func declared(d ast.Decl, rows bool) []ast.Node {
	var list []ast.Node
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type))) {
			list = append(list, d.Type)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if rows || s.Name.IsExported() {
					list = append(list, s.Type)
				}
			case *ast.ValueSpec:
				if slices.ContainsFunc(s.Names, (*ast.Ident).IsExported) {
					list = append(list, s)
				}
			}
		}
	}
	return list
}

// receiver is the name of a method's type.
func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}
