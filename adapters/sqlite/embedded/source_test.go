package embedded

import (
	"net/url"
	"strings"
	"testing"
)

// The driver and SQLite read the name of a file alike: what stands before the first question mark, without escapes.
func TestSource(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/srv/stint.db":           "file:/srv/stint.db",
		"/srv/a b#c%d?e.db":       "file:/srv/a%20b%23c%25d%3Fe.db",
		"C:/Users/me/stint.db":    "file:C:/Users/me/stint.db",
		"C:/a b/#1.db":            "file:C:/a%20b/%231.db",
		"//server/share/stint.db": "file:////server/share/stint.db",
	} {
		got, parameters, _ := strings.Cut(source(path), "?")
		if got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
		if name, err := url.PathUnescape(strings.TrimPrefix(got, "file:")); err != nil || strings.TrimPrefix(name, "//") != path && name != path {
			t.Errorf("%s: SQLite opens %s, error %v", path, name, err)
		}
		if _, err := url.Parse(source(path)); err != nil || !strings.Contains(parameters, "synchronous%28full%29") {
			t.Errorf("%s: parameters %s, error %v", path, parameters, err)
		}
	}
}
