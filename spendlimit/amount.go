package spendlimit

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/shopspring/decimal"
)

// Amount counts the smallest steps of a ledger's [Unit]: nano-dollars for USD, single tokens for Tokens.
// Arithmetic is checked: it returns [ErrOverflow] instead of wrapping. A bare Amount refuses to be
// marshalled to JSON, because it does not know its unit; use [Unit.Quantity].
type Amount int64

// MaxAmount is the largest Amount.
const MaxAmount = Amount(math.MaxInt64)

// Add returns a + b, or ErrOverflow.
func (a Amount) Add(b Amount) (Amount, error) {
	sum := a + b
	if overflows(a, b, sum) {
		return 0, overflowError{a, b}
	}
	return sum, nil
}

type overflowError struct{ a, b Amount }

func (e overflowError) Error() string { return fmt.Sprintf("%v: %d + %d", ErrOverflow, e.a, e.b) }
func (e overflowError) Unwrap() error { return ErrOverflow }

// overflows tells whether a and b have the sign that their sum has not. It is inlined where speed counts.
func overflows(a, b, sum Amount) bool { return (a^sum)&(b^sum) < 0 }

// Sub returns a - b, or ErrOverflow.
func (a Amount) Sub(b Amount) (Amount, error) {
	d := a - b
	if (d < a) != (b > 0) && b != 0 {
		return 0, fmt.Errorf("%w: %d - %d", ErrOverflow, a, b)
	}
	return d, nil
}

// Neg returns -a, or ErrOverflow.
func (a Amount) Neg() (Amount, error) { return Amount(0).Sub(a) }

// Mul returns a × n, or ErrOverflow.
func (a Amount) Mul(n int64) (Amount, error) {
	hi, lo := bits.Mul64(magnitude(int64(a)), magnitude(n))
	neg := (a < 0) != (n < 0)
	switch {
	case hi != 0 || lo > 1<<63 || (lo == 1<<63 && !neg):
		return 0, fmt.Errorf("%w: %d × %d", ErrOverflow, a, n)
	case neg:
		return Amount(-lo), nil
	}
	return Amount(lo), nil
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// MarshalJSON always fails: an Amount without its unit is not a number of money.
func (a Amount) MarshalJSON() ([]byte, error) {
	return nil, fmt.Errorf("%w: a bare Amount has no unit; marshal a Quantity", ErrUnit)
}

// UnmarshalJSON always fails, as MarshalJSON does.
func (a *Amount) UnmarshalJSON([]byte) error {
	return fmt.Errorf("%w: a bare Amount has no unit; unmarshal into a Quantity", ErrUnit)
}

// Unit is what a ledger counts. Scale is the number of decimal places of its smallest step, 0 to 12.
type Unit struct {
	Code  string
	Scale uint8
}

// The usual units. A cached token costs as little as 1e-8 USD, so USD counts nano-dollars
// (up to 9.2 billion dollars).
var (
	USD      = Unit{Code: "USD", Scale: 9}
	Tokens   = Unit{Code: "tokens", Scale: 0}
	Requests = Unit{Code: "requests", Scale: 0}
)

const maxScale = 12

func (u Unit) validate() error {
	if err := validateName("Unit.Code", u.Code); err != nil {
		return err
	}
	if u.Scale > maxScale {
		return invalid("Unit.Scale", "%d is above %d", u.Scale, maxScale)
	}
	return nil
}

// maxAmountText bounds the text of an amount, in bytes.
const maxAmountText = 40

// Parse reads plain decimal text such as "12.5" or "-0.000000001": digits, one point, one leading minus sign.
// Exponents, plus signs, spaces, underscores and leading zeros are ErrInvalid; more non-zero places than the
// unit has are ErrPrecision; a value beyond 64 bits is ErrOverflow.
func (u Unit) Parse(s string) (Amount, error) {
	if len(s) == 0 || len(s) > maxAmountText {
		return 0, invalid("amount", "%d bytes of text, want 1 to %d", len(s), maxAmountText)
	}
	digits, neg := strings.CutPrefix(s, "-")
	whole, frac, point := strings.Cut(digits, ".")
	if !allDigits(whole) || (point && !allDigits(frac)) || (len(whole) > 1 && whole[0] == '0') {
		return 0, invalid("amount", "%q is not a plain decimal number", s)
	}
	scale := int(u.Scale)
	if len(frac) > scale {
		if strings.Trim(frac[scale:], "0") != "" {
			return 0, fmt.Errorf("%w: %q has more than %d places", ErrPrecision, s, scale)
		}
		frac = frac[:scale]
	}
	var mag uint64
	for _, part := range []string{whole, frac, strings.Repeat("0", scale-len(frac))} {
		for i := range len(part) {
			hi, lo := bits.Mul64(mag, 10)
			sum, carry := bits.Add64(lo, uint64(part[i]-'0'), 0)
			if hi != 0 || carry != 0 {
				return 0, fmt.Errorf("%w: %q", ErrOverflow, s)
			}
			mag = sum
		}
	}
	switch {
	case neg && mag <= 1<<63:
		return Amount(-mag), nil
	case !neg && mag <= math.MaxInt64:
		return Amount(mag), nil
	}
	return 0, fmt.Errorf("%w: %q", ErrOverflow, s)
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// MustParse is Parse for constants; it panics on an error.
func (u Unit) MustParse(s string) Amount {
	a, err := u.Parse(s)
	if err != nil {
		panic(err)
	}
	return a
}

// Format writes a as plain decimal text without trailing zeros. Parse(Format(a)) is a.
func (u Unit) Format(a Amount) string {
	buf := make([]byte, 0, maxAmountText)
	if a < 0 {
		buf = append(buf, '-')
	}
	digits := fmt.Appendf(nil, "%0*d", int(u.Scale)+1, magnitude(int64(a)))
	point := len(digits) - int(u.Scale)
	buf = append(buf, digits[:point]...)
	if frac := strings.TrimRight(string(digits[point:]), "0"); frac != "" {
		buf = append(buf, '.')
		buf = append(buf, frac...)
	}
	return string(buf)
}

// Rounding says what becomes of places that a unit does not have.
type Rounding uint8

const (
	Exact     Rounding = iota // refuse them: ErrPrecision
	RoundUp                   // away from zero: for costs and holds
	RoundDown                 // towards zero
)

// Bounds on a decimal before any arithmetic is done on it: a number such as 1e2000000 would otherwise
// cost megabytes to look at.
const (
	maxCoefficientBits = 256
	maxExponent        = 64
)

// FromDecimal converts d. A coefficient above 256 bits or an exponent outside -64..64 is refused
// (ErrOverflow or ErrPrecision) before any arithmetic.
func (u Unit) FromDecimal(d decimal.Decimal, r Rounding) (Amount, error) {
	switch exp := d.Exponent(); {
	case exp > maxExponent:
		return 0, fmt.Errorf("%w: decimal exponent %d", ErrOverflow, exp)
	case exp < -maxExponent:
		return 0, fmt.Errorf("%w: decimal exponent %d", ErrPrecision, exp)
	case d.Coefficient().BitLen() > maxCoefficientBits:
		return 0, fmt.Errorf("%w: decimal coefficient above %d bits", ErrOverflow, maxCoefficientBits)
	}
	steps := d.Shift(int32(u.Scale))
	switch r {
	case RoundUp:
		steps = steps.RoundUp(0)
	case RoundDown:
		steps = steps.RoundDown(0)
	default:
		if !steps.IsInteger() {
			return 0, fmt.Errorf("%w: more than %d places", ErrPrecision, u.Scale)
		}
	}
	n := steps.BigInt()
	if !n.IsInt64() {
		return 0, fmt.Errorf("%w: decimal does not fit %s", ErrOverflow, u.Code)
	}
	return Amount(n.Int64()), nil
}

// Decimal converts a exactly.
func (u Unit) Decimal(a Amount) decimal.Decimal { return decimal.New(int64(a), -int32(u.Scale)) }

// Quantity is an amount that knows its unit: what goes into JSON and onto screens.
func (u Unit) Quantity(a Amount) Quantity { return Quantity{Amount: a, Unit: u} }

// Quantity marshals to a JSON string such as "12.5". To unmarshal, set Unit first; JSON numbers are refused.
type Quantity struct {
	Amount Amount
	Unit   Unit
}

func (q Quantity) String() string { return q.Unit.Format(q.Amount) }

// MarshalJSON writes the amount as a JSON string.
func (q Quantity) MarshalJSON() ([]byte, error) { return json.Marshal(q.String()) }

// UnmarshalJSON reads a JSON string in q.Unit.
func (q *Quantity) UnmarshalJSON(data []byte) error {
	if len(data) == 0 || data[0] != '"' {
		return invalid("amount", "want a JSON string, such as \"12.5\"")
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return invalid("amount", "not a JSON string")
	}
	a, err := q.Unit.Parse(s)
	if err != nil {
		return err
	}
	q.Amount = a
	return nil
}
