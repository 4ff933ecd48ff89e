package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// program is the built example; set once, before all tests.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "replay")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "replay")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		panic(string(out))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// execute runs the program in a directory of its own with the given files, and returns what it prints.
func execute(t *testing.T, files map[string]string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// sharedFile is a file that lies beside the project where it is tested.
func sharedFile(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "..", "shared", "data", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") != "true" {
		t.Skipf("no ../shared/data/%s beside the project", name)
	} else if err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	goodTrace  = traceHeader + "\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n"
	goodPrices = `{
	"m": {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06},
	"dear": {"input_cost_per_token": 1e-03, "output_cost_per_token": 2e-03},
	"free": {"input_cost_per_token": 0, "output_cost_per_token": 0},
	"half": {"input_cost_per_token": 1e-06},
	"huge": {"input_cost_per_token": 1e+20, "output_cost_per_token": 2e-06},
	"bad": {
		"input_cost_per_token": "cheap"
	}
}`
)

func TestBadInput(t *testing.T) {
	t.Parallel()
	const anyFile = ": no such file or directory"
	for name, c := range map[string]struct {
		args  string // split at blanks; '' is an empty one
		trace string // content of trace.csv; "" is a good one
		price string // content of prices.json; "" is a good one
		want  string // start of the line on stderr, after "replay: "
	}{
		"tokens not a number":   {trace: traceHeader + "\n2023-11-16 18:17:03.9799600,1,1\n2023-11-16 18:17:03.9799600,abc,10", want: `trace.csv:3: ContextTokens: "abc" is not a whole number`},
		"tokens with a point":   {trace: traceHeader + "\n2023-11-16 18:17:03.9799600,5,1.5\n", want: `trace.csv:2: GeneratedTokens: "1.5" is not a whole number`},
		"tokens negative":       {trace: traceHeader + "\n2023-11-16 18:17:03.9799600,5,-1\n", want: `trace.csv:2: GeneratedTokens: "-1" is outside 0..2000000000`},
		"tokens too many":       {trace: traceHeader + "\n2023-11-16 18:17:03.9799600,2000000001,1\n", want: `trace.csv:2: ContextTokens: "2000000001" is outside 0..2000000000`},
		"tokens beyond 64 bits": {trace: traceHeader + "\n2023-11-16 18:17:03.9799600,99999999999999999999,1\n", want: `trace.csv:2: ContextTokens: "99999999999999999999" is outside 0..2000000000`},
		"tokens missing":        {trace: traceHeader + "\n2023-11-16 18:17:03.9799600,,1\n", want: `trace.csv:2: ContextTokens: "" is not a whole number`},
		"time short":            {trace: traceHeader + "\n2023-11-16 18:17:03,5,1\n", want: `trace.csv:2: TIMESTAMP: "2023-11-16 18:17:03" is not a time like`},
		"time wrong":            {trace: traceHeader + "\n2023-02-30 18:17:03.9799600,5,1\n", want: `trace.csv:2: TIMESTAMP: "2023-02-30 18:17:03.9799600" is not a time like`},
		"two fields":            {trace: traceHeader + "\n2023-11-16 18:17:03.9799600,5\n", want: `trace.csv:2: 2 fields, want TIMESTAMP,ContextTokens,GeneratedTokens`},
		"four fields":           {trace: traceHeader + "\n2023-11-16 18:17:03.9799600,5,6,7\n", want: `trace.csv:2: 4 fields, want TIMESTAMP,ContextTokens,GeneratedTokens`},
		"open quote":            {trace: traceHeader + "\n\"2023-11-16", want: `trace.csv:2: extraneous or missing "`},
		"no header":             {trace: "2023-11-16 18:17:03.9799600,5,6\n", want: `trace.csv:1: want the header TIMESTAMP,ContextTokens,GeneratedTokens`},
		"nothing":               {trace: " ", want: `trace.csv:1: want the header TIMESTAMP,ContextTokens,GeneratedTokens`},
		"quote in the header":   {trace: "TIMESTAMP\",a\n", want: `trace.csv:1: bare "`},
		"no such trace":         {args: "-trace none.csv", want: "open none.csv" + anyFile},
		"a trace of no name":    {args: "-trace ''", want: "-trace: no file name"},
		"trace is a directory":  {args: "-trace .", want: ".: read .: is a directory"},

		"prices are no JSON":      {price: goodTrace, want: "prices.json:1: bad JSON"},
		"prices are a list":       {price: "[]", want: "prices.json:1: want a JSON object of models"},
		"prices cut off":          {price: "{\n\"m\": {", want: "prices.json:2: bad JSON"},
		"model of no file":        {price: "{}", args: "-model m", want: `prices.json: -model: price: find: unpriced: model "m": not in the table`},
		"model unknown":           {args: "-model nope", want: `prices.json: -model: price: find: unpriced: model "nope": not in the table`},
		"model with a bad rate":   {args: "-model bad", want: `prices.json:8: model "bad": input_cost_per_token: "cheap" is not a number`},
		"model without a rate":    {args: "-model half", want: `trace.csv:2: price: bound: unpriced: model "half": no rate output_cost_per_token`},
		"model beyond 64 bits":    {args: "-model huge", want: `trace.csv:2: price: bound: overflow`},
		"model missing":           {args: "-prices prices.json", want: "-model: missing, and -prices needs it"},
		"model not built in":      {args: "-model m", want: `built-in prices: -model: price: find: unpriced: model "m": not in the table`},
		"no such prices":          {args: "-prices none.json -model m", want: "open none.json" + anyFile},
		"prices of no name":       {args: "-prices '' -model m", want: "-prices: no file name"},
		"zone unknown":            {args: "-zone Mars/Olympus", want: `-zone: "Mars/Olympus" is unknown`},
		"zone without calls":      {trace: traceHeader, args: "-zone Mars/Olympus", want: `-zone: "Mars/Olympus" is unknown`},
		"zone of this machine":    {args: "-zone Local", want: `-zone: "Local" is not the same on every machine`},
		"zone outside":            {args: "-zone ../../etc/passwd", want: `-zone: "../../etc/passwd" is not the name of a time zone`},
		"limit negative":          {args: "-limit -0.5", want: `-limit: "-0.5" is negative`},
		"limit too precise":       {args: "-limit 0.0000000001", want: `-limit: too precise: "0.0000000001" has more than 9 places`},
		"limit too large":         {args: "-limit 9223372037", want: `-limit: overflow: "9223372037"`},
		"limit with exponent":     {args: "-limit 1e999999999", want: `-limit: invalid amount: "1e999999999" is not a plain decimal number`},
		"limit not a number":      {args: "-limit lots", want: `-limit: invalid amount: "lots" is not a plain decimal number`},
		"limit of blanks":         {args: "-limit \u00a0", want: `-limit: invalid amount: "\u00a0" is not a plain decimal number`},
		"limit too long":          {args: "-limit 1." + strings.Repeat("0", 50), want: `-limit: invalid amount: 52 bytes of text`},
		"no workers":              {args: "-workers 0", want: "-workers: 0, want at least 1"},
		"negative workers":        {args: "-workers -3", want: "-workers: -3, want at least 1"},
		"no accounts":             {args: "-accounts 0", want: "-accounts: 0, want at least 1"},
		"no output":               {args: "-max-output 0", want: "-max-output: 0 is outside 1..2000000000"},
		"too much output":         {args: "-max-output 2000000001", want: "-max-output: 2000000001 is outside 1..2000000000"},
		"store unknown":           {args: "-store redis://user:secret@host", want: `-store: unknown, want memory, sqlite:FILE or postgres:DSN`},
		"store of a DSN alone":    {args: "-store password=secret", want: "-store: unknown, want memory, sqlite:FILE or postgres:DSN"},
		"store of no name":        {args: "-store ''", want: `-store: unknown, want memory, sqlite:FILE or postgres:DSN`},
		"memory somewhere":        {args: "-store memory:", want: "-store: memory takes no place"},
		"sqlite without a file":   {args: "-store sqlite", want: "-store: sqlite needs a file, want sqlite:FILE"},
		"sqlite of no name":       {args: "-store sqlite:", want: "-store: sqlite needs a file, want sqlite:FILE"},
		"sqlite on a directory":   {args: "-store sqlite:.", want: `-store: embedded: open ".": invalid: this is a directory`},
		"sqlite on another file":  {args: "-store sqlite:prices.json", want: `-store: embedded: open "prices.json": unavailable: the file is not a SQLite database`},
		"sqlite in no directory":  {args: "-store sqlite:none/a.db", want: `-store: embedded: open "none/a.db": unavailable`},
		"postgres without a DSN":  {args: "-store postgres:", want: "-store: postgres needs a DSN, want postgres:DSN"},
		"postgres of a bad DSN":   {args: "-store postgres://user:secret@host:port/db", want: "-store: the DSN of Postgres can't be read"},
		"postgres that is down":   {args: "-store postgres://user:secret@127.0.0.1:1/db", want: "-store: postgres: migrate: unavailable"},
		"schema of the server":    {args: "-store postgres:host=127.0.0.1 -schema pg_x", want: "-store: postgres: migrate: invalid: Schema \"pg_x\""},
		"schema on a file":        {args: "-store sqlite:a.db -schema b", want: "-schema: only -store postgres:DSN has one"},
		"schema in memory":        {args: "-schema b", want: "-schema: only -store postgres:DSN has one"},
		"period unknown":          {args: "-period year", want: `invalid value "year" for flag -period: invalid Kind: want day, week, month or total`},
		"flag unknown":            {args: "-speed 3", want: "flag provided but not defined: -speed"},
		"flag unknown, two lines": {args: "-a\nb", want: "flag provided but not defined: -a b"},
		"stray argument":          {args: "-json extra", want: "unexpected argument"},
		"DSN without quotes":      {args: "-store postgres:user=u password=secret", want: "unexpected argument"},
		"DSN without a flag":      {args: "postgres://user:secret@host/db", want: "unexpected argument"},
		"password with a slash":   {args: "-store postgres://user:1/secret@127.0.0.1/db", want: "-store: the DSN of Postgres can't be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"trace.csv": goodTrace, "prices.json": goodPrices}
			var args []string
			switch {
			case c.trace != "":
				files["trace.csv"], args = c.trace, []string{"-trace", "trace.csv"}
			case c.price != "":
				files["prices.json"], args = c.price, []string{"-prices", "prices.json", "-model", "m"}
			case strings.HasPrefix(c.want, "prices.json:"), strings.HasPrefix(c.want, "trace.csv:"):
				args = []string{"-trace", "trace.csv", "-prices", "prices.json"}
			}
			for _, arg := range strings.Split(c.args, " ") {
				if arg != "" {
					args = append(args, strings.ReplaceAll(arg, "''", ""))
				}
			}
			for _, form := range [][]string{args, append([]string{"-json"}, args...)} {
				stdout, stderr, status := execute(t, files, form...)
				line, oneLine := strings.CutSuffix(stderr, "\n")
				if strings.Contains(stderr, "secret") {
					t.Errorf("%q: stderr %q tells a secret", form, stderr)
				}
				if stdout != "" || status != 2 || !oneLine || strings.Contains(line, "\n") || !strings.HasPrefix(line, "replay: "+c.want) {
					t.Errorf("%q: status %d\nstdout %q\nstderr %q\n  want %q", form, status, stdout, stderr, "replay: "+c.want)
				}
			}
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	stdout, stderr, status := execute(t, nil, "-h")
	if status != 0 || stderr != "" || !strings.Contains(stdout, "-max-output") {
		t.Errorf("status %d, stderr %q, stdout %q", status, stderr, stdout)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	stdout, stderr, status := execute(t, nil)
	want := `built-in trace, priced as demo-large: limit 5 USD per day in UTC
each call holds the price of its prompt and of 2000 output tokens

       period   calls   admitted   denied     spent, USD     peak, USD
   2026-03-02     317        317        0    3.788769      3.811329   ███████████████░░░░░
   2026-03-03     559        381      178    4.972632      4.998867   ████████████████████
   2026-03-04     761        353      408    4.977072      4.998867   ████████████████████
   2026-03-05     496        371      125    4.972938      4.998588   ████████████████████
   2026-03-06     144        144        0    1.577991      1.606221   ██████░░░░░░░░░░░░░░
          all    2277       1566      711   20.289402      4.998867   ████████████████████

peak: the most that was spent + held, on one account, right after a grant
`
	if stdout != want || stderr != "" || status != 0 {
		t.Errorf("status %d, stderr %q, stdout\n%s\nwant\n%s", status, stderr, stdout, want)
	}
}

func TestTableWithoutLimit(t *testing.T) {
	t.Parallel()
	files := map[string]string{"trace.csv": goodTrace}
	stdout, stderr, status := execute(t, files, "-trace", "trace.csv", "-max-output", "10", "-period", "total", "-accounts", "2")
	want := `trace.csv, priced as demo-large: no limit in total, for each of 2 accounts
each call holds the price of its prompt and of 10 output tokens

   period   calls   admitted   denied    spent, USD     peak, USD
    total       2          2        0   0.024234      0.014574   ` + `
      all       2          2        0   0.024234      0.014574   ` + `

peak: the most that was spent + held, on one account, right after a grant
`
	if stdout != want || stderr != "" || status != 0 {
		t.Errorf("status %d, stderr %q, stdout\n%s\nwant\n%s", status, stderr, stdout, want)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	files := map[string]string{"trace.csv": goodTrace, "empty.csv": traceHeader, "prices.json": goodPrices}
	on := func(file string, args ...string) []string {
		return append([]string{"-json", "-trace", file, "-prices", "prices.json", "-model", "m", "-max-output", "10"}, args...)
	}
	const day = `"period":"2023-11-16"`
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"limit not given":  {on("trace.csv", "-model", "dear"), `{"calls":2,"admitted":2,"denied":0,"spent":"8.024","peak":"8.028","periods":[{` + day + `,"admitted":2,"denied":0,"spent":"8.024","peak":"8.028"}]}`},
		"no limit":         {on("trace.csv", "-limit", ""), `{"calls":2,"admitted":2,"denied":0,"spent":"0.008024","peak":"0.008028","periods":[{` + day + `,"admitted":2,"denied":0,"spent":"0.008024","peak":"0.008028"}]}`},
		"just enough":      {on("trace.csv", "-limit", "0.008028"), `{"calls":2,"admitted":2,"denied":0,"spent":"0.008024","peak":"0.008028","periods":[{` + day + `,"admitted":2,"denied":0,"spent":"0.008024","peak":"0.008028"}]}`},
		"a step too small": {on("trace.csv", "-limit", "0.008027999"), `{"calls":2,"admitted":1,"denied":1,"spent":"0.004828","peak":"0.004828","periods":[{` + day + `,"admitted":1,"denied":1,"spent":"0.004828","peak":"0.004828"}]}`},
		"limit 0":          {on("trace.csv", "-limit", "0"), `{"calls":2,"admitted":0,"denied":2,"spent":"0","peak":"0","periods":[{` + day + `,"admitted":0,"denied":2,"spent":"0","peak":"0"}]}`},
		"free model":       {on("trace.csv", "-limit", "0", "-model", "free"), `{"calls":2,"admitted":2,"denied":0,"spent":"0","peak":"0","periods":[{` + day + `,"admitted":2,"denied":0,"spent":"0","peak":"0"}]}`},
		"two accounts":     {on("trace.csv", "-limit", "0.005", "-accounts", "2"), `{"calls":2,"admitted":2,"denied":0,"spent":"0.008024","peak":"0.004828","periods":[{` + day + `,"admitted":2,"denied":0,"spent":"0.008024","peak":"0.004828"}]}`},
		"more accounts":    {on("trace.csv", "-accounts", "9000000000000000000"), `{"calls":2,"admitted":2,"denied":0,"spent":"0.008024","peak":"0.004828","periods":[{` + day + `,"admitted":2,"denied":0,"spent":"0.008024","peak":"0.004828"}]}`},
		"more workers":     {on("trace.csv", "-workers", "9000000000000000000", "-limit", "0.001"), `{"calls":2,"admitted":0,"denied":2,"spent":"0","peak":"0","periods":[{` + day + `,"admitted":0,"denied":2,"spent":"0","peak":"0"}]}`},
		"next day there":   {on("trace.csv", "-zone", "Pacific/Auckland"), `{"calls":2,"admitted":2,"denied":0,"spent":"0.008024","peak":"0.008028","periods":[{"period":"2023-11-17","admitted":2,"denied":0,"spent":"0.008024","peak":"0.008028"}]}`},
		"no calls":         {on("empty.csv"), `{"calls":0,"admitted":0,"denied":0,"spent":"0","peak":"0","periods":[]}`},
		"week":             {[]string{"-json", "-period", "week", "-limit", ""}, `{"calls":2277,"admitted":2277,"denied":0,"spent":"29.661816","peak":"29.690046","periods":[{"period":"2026-03-02","admitted":2277,"denied":0,"spent":"29.661816","peak":"29.690046"}]}`},
		"month":            {[]string{"-json", "-period", "month", "-limit", ""}, `{"calls":2277,"admitted":2277,"denied":0,"spent":"29.661816","peak":"29.690046","periods":[{"period":"2026-03-01","admitted":2277,"denied":0,"spent":"29.661816","peak":"29.690046"}]}`},
		"total":            {[]string{"-json", "-period", "total", "-limit", ""}, `{"calls":2277,"admitted":2277,"denied":0,"spent":"29.661816","peak":"29.690046","periods":[{"period":"total","admitted":2277,"denied":0,"spent":"29.661816","peak":"29.690046"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, status := execute(t, files, c.args...)
			if stdout != c.want+"\n" || stderr != "" || status != 0 {
				t.Errorf("status %d, stderr %q\n got %s\nwant %s", status, stderr, stdout, c.want)
			}
		})
	}
}

// The program is an example: what it imports is what its readers can import.
func TestImports(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	embedsZones := false
	for _, path := range strings.Fields(string(out)) {
		embedsZones = embedsZones || path == "time/tzdata"
		first, _, _ := strings.Cut(path, "/")
		ours := strings.HasPrefix(path, "github.com/stint-go/stint/") && !strings.Contains(path, "/internal/")
		library := path == "github.com/schollz/progressbar/v3" || path == "github.com/jackc/pgx/v5/pgxpool"
		if strings.Contains(first, ".") && !ours && !library {
			t.Errorf("imports %s", path)
		}
	}
	if !embedsZones {
		t.Error("has no time zone data of its own")
	}
}

func TestShowBar(t *testing.T) {
	t.Parallel()
	var screen bytes.Buffer
	step, done := showBar(&screen, 3)
	for range 3 {
		step()
	}
	done()
	if got := screen.String(); !strings.Contains(got, "100%") || !strings.Contains(got, "(3/3") || !strings.HasSuffix(got, "\n\n") {
		t.Errorf("the screen shows %q", got)
	}
}
