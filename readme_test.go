package stint_test

import (
	"os"
	"strings"
	"testing"
)

// The README's program is the one that the tests compile and run.
func TestReadmeShowsTheExample(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("spendlimit/example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, ok := strings.Cut(string(readme), "```go\n")
	shown, _, closed := strings.Cut(shown, "```")
	_, body, found := strings.Cut(string(source), "func Example() {\n")
	body, output, end := strings.Cut(body, "\t// Output:\n")
	if !ok || !closed || !found || !end {
		t.Fatal("no program in the README, or no Example")
	}
	if want := strings.ReplaceAll("\n"+body, "\n\t", "\n"); "\n"+shown != want {
		t.Errorf("the README shows\n%s\nthe example is\n%s", shown, want)
	}
	for _, line := range strings.Split(strings.TrimSpace(output), "\n") {
		line = strings.TrimPrefix(strings.TrimSpace(line), "// ")
		if line != "}" && !strings.Contains(string(readme), "`"+line+"`") {
			t.Errorf("the README does not show the output %q", line)
		}
	}
}
