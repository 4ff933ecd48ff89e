package sqlite

import (
	"database/sql"
	"fmt"
	"math"
)

// row implements sqlrow.Row: it takes a row's values as they come and puts them where they belong, without the conversions
// of package sql, which go by way of text and reflection.
type row struct {
	rows   *sql.Rows
	values []any
	into   []any // pointers to these
}

// Scan implements sqlrow.Row.
func (r *row) Scan(fields ...any) error {
	if len(r.values) != len(fields) {
		r.values, r.into = make([]any, len(fields)), make([]any, len(fields))
		for i := range r.values {
			r.into[i] = &r.values[i]
		}
	}
	if err := r.rows.Scan(r.into...); err != nil {
		return err
	}
	for i, f := range fields {
		if !set(f, r.values[i]) {
			return fmt.Errorf("column %d: %T where a %T should be", i+1, r.values[i], f)
		}
	}
	return nil
}

// set stores a value where a field points, if it can be there.
func set(field, v any) bool {
	switch to := field.(type) {
	case *string:
		s, ok := v.(string)
		*to = s
		return ok
	case *[]byte: // package sql has copied it
		b, ok := v.([]byte)
		*to = b
		return ok
	case **int64:
		n, ok := v.(int64)
		if *to = nil; ok {
			*to = &n
		}
		return ok || v == nil
	}
	n, ok := v.(int64)
	switch to := field.(type) {
	case *int64:
		*to = n
	case *int:
		*to = int(n)
		ok = ok && int64(*to) == n
	case *uint8:
		*to = uint8(n) //nolint:gosec // checked
		ok = ok && n >= 0 && n <= math.MaxUint8
	case *bool:
		*to = n != 0
		ok = ok && n&^1 == 0
	default:
		return false
	}
	return ok
}
