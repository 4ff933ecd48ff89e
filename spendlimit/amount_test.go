package spendlimit_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/stint-go/stint/spendlimit"
)

func TestT110_TextThatIsNoAmount(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"1e9": spendlimit.ErrInvalid, "+1": spendlimit.ErrInvalid, " 1": spendlimit.ErrInvalid, "1 ": spendlimit.ErrInvalid,
		"1_0": spendlimit.ErrInvalid, "01": spendlimit.ErrInvalid, "00": spendlimit.ErrInvalid, "-01": spendlimit.ErrInvalid,
		".5": spendlimit.ErrInvalid, "1.": spendlimit.ErrInvalid, "-.5": spendlimit.ErrInvalid, "-": spendlimit.ErrInvalid,
		".": spendlimit.ErrInvalid, "--1": spendlimit.ErrInvalid, "1.-5": spendlimit.ErrInvalid, "1.2.3": spendlimit.ErrInvalid,
		"1,5": spendlimit.ErrInvalid, "0x10": spendlimit.ErrInvalid, "1\n": spendlimit.ErrInvalid, "١": spendlimit.ErrInvalid,
		"\u22121": spendlimit.ErrInvalid, "1/2": spendlimit.ErrInvalid, "1:": spendlimit.ErrInvalid,
		"1." + strings.Repeat("0", 39): spendlimit.ErrInvalid, // 41 bytes
		strings.Repeat("9", 1_000_000): spendlimit.ErrInvalid,
		"0.0000000001":                 spendlimit.ErrPrecision,
		"1.00000000010":                spendlimit.ErrPrecision,
		strings.Repeat("9", 40):        spendlimit.ErrOverflow,
	} {
		got, err := spendlimit.USD.Parse(text)
		if !errors.Is(err, want) || got != 0 || len(err.Error()) > 200 {
			t.Errorf("Parse(%.50q) = %d, %v, want %v", text, got, err, want)
		}
	}
}

func TestT110_HugeExponentCostsNothing(t *testing.T) {
	t.Parallel()
	for exp, want := range map[int32]error{
		-2_000_000: spendlimit.ErrPrecision, math.MinInt32: spendlimit.ErrPrecision, -65: spendlimit.ErrPrecision,
		2_000_000: spendlimit.ErrOverflow, math.MaxInt32: spendlimit.ErrOverflow, 65: spendlimit.ErrOverflow,
	} {
		for _, r := range []spendlimit.Rounding{spendlimit.Exact, spendlimit.RoundUp, spendlimit.RoundDown} {
			best := time.Hour // of several, because the machine may be busy
			for range 20 {
				start := time.Now()
				got, err := spendlimit.USD.FromDecimal(decimal.New(1, exp), r)
				best = min(best, time.Since(start))
				if !errors.Is(err, want) || got != 0 {
					t.Errorf("1e%d: %d, %v, want %v", exp, got, err, want)
				}
			}
			if best > time.Millisecond {
				t.Errorf("1e%d took %v", exp, best)
			}
		}
	}
}

func TestFromDecimal(t *testing.T) {
	t.Parallel()
	bits := func(n uint) decimal.Decimal { return decimal.NewFromBigInt(new(big.Int).Lsh(big.NewInt(1), n), -64) }
	for _, c := range []struct {
		in    decimal.Decimal
		round spendlimit.Rounding
		want  spendlimit.Amount
		err   error
	}{
		{decimal.Decimal{}, spendlimit.Exact, 0, nil},
		{decimal.New(125, -1), spendlimit.Exact, 12_500_000_000, nil},
		{decimal.New(1, 9), spendlimit.Exact, 1_000_000_000_000_000_000, nil},
		{decimal.New(1, 10), spendlimit.Exact, 0, spendlimit.ErrOverflow},
		{decimal.New(1, 64), spendlimit.Exact, 0, spendlimit.ErrOverflow},
		{decimal.New(1, -9), spendlimit.Exact, 1, nil},
		{decimal.New(10, -10), spendlimit.Exact, 1, nil},
		{decimal.New(1, -10), spendlimit.Exact, 0, spendlimit.ErrPrecision},
		{decimal.New(1, -10), spendlimit.RoundUp, 1, nil},
		{decimal.New(1, -10), spendlimit.RoundDown, 0, nil},
		{decimal.New(-1, -10), spendlimit.RoundUp, -1, nil},
		{decimal.New(-1, -10), spendlimit.RoundDown, 0, nil},
		{decimal.New(19, -10), spendlimit.RoundUp, 2, nil},
		{decimal.New(19, -10), spendlimit.RoundDown, 1, nil},
		{decimal.New(1, -64), spendlimit.RoundUp, 1, nil},
		{decimal.New(math.MaxInt64, -9), spendlimit.Exact, math.MaxInt64, nil},
		{decimal.New(math.MinInt64, -9), spendlimit.Exact, math.MinInt64, nil},
		{decimal.New(math.MaxInt64, -9).Add(decimal.New(1, -9)), spendlimit.Exact, 0, spendlimit.ErrOverflow},
		{decimal.New(math.MaxInt64, -9).Add(decimal.New(1, -10)), spendlimit.RoundUp, 0, spendlimit.ErrOverflow},
		{decimal.New(math.MaxInt64, -9).Add(decimal.New(1, -10)), spendlimit.RoundDown, math.MaxInt64, nil},
		{bits(200), spendlimit.RoundUp, 160_694, nil}, // 2^200 × 1e-64 USD, in nano-dollars 1.6e5
		{bits(255), spendlimit.RoundUp, 0, spendlimit.ErrOverflow},
		{bits(256), spendlimit.RoundUp, 0, spendlimit.ErrOverflow}, // 257 bits
		{decimal.New(1, -9), spendlimit.Rounding(9), 1, nil},
		{decimal.New(1, -10), spendlimit.Rounding(9), 0, spendlimit.ErrPrecision}, // an unknown rounding is Exact
	} {
		got, err := spendlimit.USD.FromDecimal(c.in, c.round)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("FromDecimal(%s, %d) = %d, %v, want %d, %v", c.in, c.round, got, err, c.want, c.err)
		}
	}
}

func TestFromDecimal_WideCoefficient(t *testing.T) {
	t.Parallel()
	wide := func(n uint) decimal.Decimal { return decimal.NewFromBigInt(new(big.Int).Lsh(big.NewInt(1), n), -64) }
	if got, err := spendlimit.Tokens.FromDecimal(wide(255), spendlimit.RoundDown); got != 5_789_604_461_865 || err != nil {
		t.Errorf("256 bits: %d, %v", got, err)
	}
	if got, err := spendlimit.Tokens.FromDecimal(wide(256), spendlimit.RoundDown); got != 0 || !errors.Is(err, spendlimit.ErrOverflow) {
		t.Errorf("257 bits, whose value fits: %d, %v", got, err)
	}
}

func TestT109_EndOfInt64(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]spendlimit.Amount{
		"9223372036.854775807":    math.MaxInt64,
		"9223372036.8547758070":   math.MaxInt64,
		"-9223372036.854775808":   math.MinInt64,
		"9223372036.85477580700":  math.MaxInt64,
		"9223372036.854775808":    0, // 2⁶³ steps
		"-9223372036.854775809":   0,
		"18446744073.709551616":   0, // 2⁶⁴
		"18446744073.709551617":   0,
		"-18446744073.709551617":  0,
		"184467440737.095516160":  0,
		"340282366920938463463.0": 0,
	} {
		got, err := spendlimit.USD.Parse(text)
		if got != want || (want == 0) != errors.Is(err, spendlimit.ErrOverflow) || (want != 0) != (err == nil) {
			t.Errorf("Parse(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	if got, err := spendlimit.Amount(math.MaxInt64 - 1).Add(2); got != 0 || !errors.Is(err, spendlimit.ErrOverflow) {
		t.Errorf("2⁶³ − 2 and 2 is %d, %v", got, err)
	}
}

func TestT86_LastStep(t *testing.T) {
	t.Parallel()
	spent, err := spendlimit.USD.Parse("4.999999999")
	if err != nil {
		t.Fatal(err)
	}
	if room, err := spendlimit.USD.MustParse("5").Sub(spent); room != 1 || err != nil {
		t.Errorf("room %d, %v, want one step", room, err)
	}
	if got, err := spendlimit.USD.Parse("4.9999999995"); got != 0 || !errors.Is(err, spendlimit.ErrPrecision) {
		t.Errorf("half a step: %d, %v", got, err)
	}
	if got, err := spendlimit.USD.Parse("4.9999999990"); got != spent || err != nil {
		t.Errorf("zeros beyond the scale: %d, %v", got, err)
	}
}

func TestT77_LimitText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"abc", "nan", "NaN", "inf", "Inf", "-inf", "Infinity", "", "null", "unlimited"} {
		if got, err := spendlimit.USD.Parse(text); got != 0 || !errors.Is(err, spendlimit.ErrInvalid) {
			t.Errorf("Parse(%q) = %d, %v", text, got, err)
		}
	}
	for text, want := range map[string]spendlimit.Amount{"0": 0, "-0": 0, "0.000": 0, "-3": -3_000_000_000} { // a limit's sign is the limit's to judge
		if got, err := spendlimit.USD.Parse(text); got != want || err != nil {
			t.Errorf("Parse(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestT52_MillionSmallCosts(t *testing.T) {
	t.Parallel()
	var sum spendlimit.Amount
	cost := spendlimit.USD.MustParse("0.001")
	for range 1_000_000 {
		var err error
		if sum, err = sum.Add(cost); err != nil {
			t.Fatal(err)
		}
	}
	if sum != spendlimit.USD.MustParse("1000") {
		t.Errorf("sum %s", spendlimit.USD.Format(sum))
	}
	if text, err := json.Marshal(spendlimit.USD.Quantity(sum)); string(text) != `"1000"` || err != nil {
		t.Errorf("JSON %s, %v", text, err)
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	small := spendlimit.Unit{Code: "x", Scale: 12}
	for _, c := range []struct {
		unit spendlimit.Unit
		in   spendlimit.Amount
		want string
	}{
		{spendlimit.USD, 0, "0"}, {spendlimit.USD, 1, "0.000000001"}, {spendlimit.USD, -1, "-0.000000001"},
		{spendlimit.USD, 12_500_000_000, "12.5"}, {spendlimit.USD, -1_000_000_000, "-1"}, {spendlimit.USD, 100_000_000_000, "100"},
		{spendlimit.USD, math.MaxInt64, "9223372036.854775807"}, {spendlimit.USD, math.MinInt64, "-9223372036.854775808"},
		{spendlimit.Tokens, 1_200, "1200"}, {spendlimit.Tokens, 0, "0"}, {spendlimit.Tokens, math.MinInt64, "-9223372036854775808"},
		{small, 1, "0.000000000001"}, {small, math.MaxInt64, "9223372.036854775807"},
	} {
		if got := c.unit.Format(c.in); got != c.want {
			t.Errorf("Format(%d) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestMustParse(t *testing.T) {
	t.Parallel()
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, spendlimit.ErrInvalid) {
			t.Errorf("recovered %v", err)
		}
	}()
	spendlimit.USD.MustParse("x")
}

var scales = []spendlimit.Unit{spendlimit.Tokens, {Code: "cent", Scale: 2}, spendlimit.USD, {Code: "pico", Scale: 12}}

// drawInt prefers the ends of int64, where checked arithmetic goes wrong.
func drawInt(t *rapid.T, name string) int64 {
	return rapid.OneOf(
		rapid.Int64(),
		rapid.Int64Range(math.MaxInt64-3, math.MaxInt64),
		rapid.Int64Range(math.MinInt64, math.MinInt64+3),
		rapid.Int64Range(-3, 3),
		rapid.Int64Range(3_037_000_490, 3_037_000_510), // about √2⁶³
	).Draw(t, name)
}

func TestArithmeticIsChecked(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x, y := drawInt(t, "x"), drawInt(t, "y")
		a, b, bigX, bigY := spendlimit.Amount(x), spendlimit.Amount(y), big.NewInt(x), big.NewInt(y)
		check := func(op string, got spendlimit.Amount, err error, want *big.Int) {
			t.Helper()
			switch {
			case want.IsInt64() && (err != nil || int64(got) != want.Int64()):
				t.Fatalf("%d %s %d = %d, %v, want %s", x, op, y, got, err, want)
			case !want.IsInt64() && (!errors.Is(err, spendlimit.ErrOverflow) || got != 0):
				t.Fatalf("%d %s %d = %d, %v, want overflow", x, op, y, got, err)
			}
		}
		sum, err := a.Add(b)
		check("+", sum, err, new(big.Int).Add(bigX, bigY))
		difference, err := a.Sub(b)
		check("-", difference, err, new(big.Int).Sub(bigX, bigY))
		product, err := a.Mul(y)
		check("×", product, err, new(big.Int).Mul(bigX, bigY))
		negative, err := a.Neg()
		check("neg", negative, err, new(big.Int).Neg(bigX))
	})
}

func TestArithmeticAtTheEnds(t *testing.T) {
	t.Parallel()
	const least, most = spendlimit.Amount(math.MinInt64), spendlimit.MaxAmount
	mul := func(a spendlimit.Amount, n int64) func() (spendlimit.Amount, error) {
		return func() (spendlimit.Amount, error) { return a.Mul(n) }
	}
	for name, c := range map[string]struct {
		do   func() (spendlimit.Amount, error)
		want spendlimit.Amount // 0 is overflow
	}{
		"max+1":  {func() (spendlimit.Amount, error) { return most.Add(1) }, 0},
		"min-1":  {func() (spendlimit.Amount, error) { return least.Sub(1) }, 0},
		"min+-1": {func() (spendlimit.Amount, error) { return least.Add(-1) }, 0},
		"0-min":  {func() (spendlimit.Amount, error) { return spendlimit.Amount(0).Sub(least) }, 0},
		"-1-min": {func() (spendlimit.Amount, error) { return spendlimit.Amount(-1).Sub(least) }, most},
		"-min":   {least.Neg, 0},
		"-max":   {most.Neg, least + 1},
		"min×-1": {mul(least, -1), 0}, "-1×min": {mul(-1, math.MinInt64), 0},
		"min×1": {mul(least, 1), least}, "1×min": {mul(1, math.MinInt64), least},
		"2⁶²×2": {mul(1<<62, 2), 0}, "2⁶²×-2": {mul(1<<62, -2), least}, "-2⁶²×2": {mul(-1<<62, 2), least},
		"2⁶⁴": {mul(1<<32, 1<<32), 0}, "max×-1": {mul(most, -1), least + 1}, "min×min": {mul(least, math.MinInt64), 0},
	} {
		got, err := c.do()
		if got != c.want || (c.want == 0) != errors.Is(err, spendlimit.ErrOverflow) || (c.want != 0) != (err == nil) {
			t.Errorf("%s = %d, %v, want %d", name, got, err, c.want)
		}
	}
}

func TestTextRoundTrips(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		u := rapid.SampledFrom(scales).Draw(t, "unit")
		a := spendlimit.Amount(drawInt(t, "amount"))
		text := u.Format(a)
		if got, err := u.Parse(text); got != a || err != nil {
			t.Fatalf("%d as %q is %d, %v", a, text, got, err)
		}
		if strings.Contains(text, ".") && (strings.HasSuffix(text, "0") || strings.HasSuffix(text, ".")) {
			t.Fatalf("%q has trailing zeros", text)
		}
		if got, err := u.FromDecimal(u.Decimal(a), spendlimit.Exact); got != a || err != nil {
			t.Fatalf("%d as decimal %s is %d, %v", a, u.Decimal(a), got, err)
		}
		in, out := u.Quantity(a), spendlimit.Quantity{Unit: u}
		data, err := json.Marshal(in)
		if err != nil || string(data) != `"`+text+`"` {
			t.Fatalf("JSON %s, %v", data, err)
		}
		if err := json.Unmarshal(data, &out); err != nil || out != in || out.String() != text {
			t.Fatalf("JSON %s read as %v, %v", data, out, err)
		}
	})
}

func TestQuantityJSON(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]error{
		`1`: spendlimit.ErrInvalid, `12.5`: spendlimit.ErrInvalid, `null`: spendlimit.ErrInvalid, `true`: spendlimit.ErrInvalid,
		`{}`: spendlimit.ErrInvalid, `["1"]`: spendlimit.ErrInvalid, `""`: spendlimit.ErrInvalid, `"1e3"`: spendlimit.ErrInvalid,
		`"0.0000000001"`: spendlimit.ErrPrecision, `"99999999999"`: spendlimit.ErrOverflow,
	} {
		q := spendlimit.USD.Quantity(7)
		if err := json.Unmarshal([]byte(data), &q); !errors.Is(err, want) || q != spendlimit.USD.Quantity(7) {
			t.Errorf("%s read as %v, %v, want %v and no change", data, q, err, want)
		}
	}
	var q spendlimit.Quantity
	for _, data := range []string{"", `"`, `"1`} { // called without a JSON decoder
		if err := q.UnmarshalJSON([]byte(data)); !errors.Is(err, spendlimit.ErrInvalid) {
			t.Errorf("%q: %v", data, err)
		}
	}
	type row struct{ Spent, Held spendlimit.Quantity }
	r := row{Spent: spendlimit.Quantity{Unit: spendlimit.USD}, Held: spendlimit.Quantity{Unit: spendlimit.Tokens}}
	if err := json.Unmarshal([]byte(`{"Spent": "0.5", "Held": "-12"}`), &r); err != nil || r.Spent.Amount != 500_000_000 || r.Held.Amount != -12 {
		t.Errorf("row %v, %v", r, err)
	}
}

func TestBareAmountHasNoJSON(t *testing.T) {
	t.Parallel()
	a := spendlimit.Amount(5)
	for _, v := range []any{a, &a, struct{ A spendlimit.Amount }{a}, []spendlimit.Amount{a}} {
		if data, err := json.Marshal(v); !errors.Is(err, spendlimit.ErrUnit) {
			t.Errorf("%T: JSON %s, %v", v, data, err)
		}
	}
	for _, data := range []string{`5`, `"5"`, `null`} {
		if err := json.Unmarshal([]byte(data), &a); !errors.Is(err, spendlimit.ErrUnit) || a != 5 {
			t.Errorf("%s: %d, %v", data, a, err)
		}
	}
}

var amountText = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`)

// FuzzParseAmount compares Parse with the grammar and with the decimal library.
func FuzzParseAmount(f *testing.F) {
	for _, s := range []string{"0", "-0", "12.5", "0.000000001", "1e9", "01", "1.", ".5", "9223372036.854775808", "-9223372036854775808", "0.0000000000001"} {
		f.Add(s, uint8(9))
	}
	f.Fuzz(func(t *testing.T, s string, scale uint8) {
		u := spendlimit.Unit{Code: "x", Scale: scale % 13}
		got, err := u.Parse(s)
		if !amountText.MatchString(s) || len(s) > 40 {
			if !errors.Is(err, spendlimit.ErrInvalid) || got != 0 {
				t.Fatalf("Parse(%q) = %d, %v, want invalid", s, got, err)
			}
			return
		}
		d, decErr := decimal.NewFromString(s)
		if decErr != nil {
			t.Fatal(decErr)
		}
		want, wantErr := u.FromDecimal(d, spendlimit.Exact)
		for _, class := range []error{spendlimit.ErrPrecision, spendlimit.ErrOverflow} {
			if errors.Is(err, class) != errors.Is(wantErr, class) {
				t.Fatalf("Parse(%q) error %v, decimal %v", s, err, wantErr)
			}
		}
		if got != want || (err == nil) != (wantErr == nil) {
			t.Fatalf("Parse(%q) = %d, %v, want %d, %v", s, got, err, want, wantErr)
		}
		if err != nil {
			return
		}
		if back, err := u.Parse(u.Format(got)); back != got || err != nil {
			t.Fatalf("%q → %d → %q → %d, %v", s, got, u.Format(got), back, err)
		}
	})
}

func ExampleUnit_Parse() {
	a, err := spendlimit.USD.Parse("12.50")
	fmt.Println(int64(a), spendlimit.USD.Format(a), err)
	_, err = spendlimit.USD.Parse("0.0000000001")
	fmt.Println(err)
	// Output:
	// 12500000000 12.5 <nil>
	// too precise: "0.0000000001" has more than 9 places
}
