package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadTrace(t *testing.T) {
	t.Parallel()
	at := func(hour, ns int) time.Time { return time.Date(2023, time.November, 16, hour, 0, 0, ns, time.UTC) }
	first := call{line: 2, at: at(18, 979_960_100), prompt: 5, output: 6}
	const line2 = "2023-11-16 18:00:00.9799601,5,6"
	for name, c := range map[string]struct {
		text string
		want []call
	}{
		"header only":     {"", nil},
		"last line ends":  {line2 + "\n", []call{first}},
		"last line open":  {line2, []call{first}},
		"lines of CR LF":  {line2 + "\r\n2023-11-16 19:00:00.0000000,7,0\r\n", []call{first, {line: 3, at: at(19, 0), prompt: 7}}},
		"time goes back":  {line2 + "\n2023-11-15 18:00:00.0000000,7,8", []call{first, {line: 3, at: first.at, prompt: 7, output: 8}}},
		"same time again": {line2 + "\n" + line2, []call{first, {line: 3, at: first.at, prompt: 5, output: 6}}},
		"most tokens":     {"2023-11-16 19:00:00.0000000,2000000000,2000000000", []call{{line: 2, at: at(19, 0), prompt: 2e9, output: 2e9}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := readTrace("t.csv", strings.NewReader(traceHeader+"\n"+c.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(call{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadEmptyTrace(t *testing.T) {
	t.Parallel()
	if _, err := readTrace("t.csv", strings.NewReader("")); err == nil || err.Error() != "t.csv:1: want the header "+traceHeader {
		t.Errorf("error %v", err)
	}
}

func TestSynthetic(t *testing.T) {
	t.Parallel()
	calls := synthetic()
	if diff := cmp.Diff(calls, synthetic(), cmp.AllowUnexported(call{})); diff != "" {
		t.Errorf("it is not the same twice: %s", diff)
	}
	night, noon, close := 0, 0, 0
	for i, c := range calls {
		if c.line != i+2 || c.prompt < 1 || c.output < 1 || c.output > 2000 {
			t.Errorf("call %d is %+v", i, c)
		}
		switch h := c.at.Hour(); {
		case h < 6:
			night++
		case h >= 9 && h < 15:
			noon++
		}
		if i > 0 && c.at.Before(calls[i-1].at) {
			t.Errorf("line %d goes back in time", c.line)
		}
		if i > 0 && c.at.Sub(calls[i-1].at) < 25*time.Second {
			close++
		}
	}
	if night*10 > noon || noon == 0 {
		t.Errorf("no daily rhythm: %d calls by night, %d by day", night, noon)
	}
	if close*3 < len(calls) {
		t.Errorf("no bursts: %d of %d calls follow another at once", close, len(calls))
	}
}
