package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// call is one line of a trace.
type call struct {
	line           int // of the file
	at             time.Time
	prompt, output int64 // tokens
}

const (
	traceHeader  = "TIMESTAMP,ContextTokens,GeneratedTokens"
	traceTime    = "2006-01-02 15:04:05.0000000" // UTC
	builtinTrace = "built-in trace"
)

// loadTrace reads the trace of a file, "" for the built-in one, and returns the name for it in messages.
func loadTrace(file string) (name string, calls []call, err error) {
	if file == "" {
		return builtinTrace, synthetic(), nil
	}
	f, err := os.Open(file)
	if err != nil {
		return file, nil, err
	}
	defer f.Close()
	calls, err = readTrace(file, f)
	return file, calls, err
}

// readTrace reads calls in file order. A call that is stamped earlier than the one before it gets that one's time: the
// clock never goes back.
func readTrace(name string, r io.Reader) ([]call, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord = -1 // counted here, for a better message
	header, err := in.Read()
	if err == io.EOF || err == nil && strings.Join(header, ",") != traceHeader {
		return nil, fmt.Errorf("%s:1: want the header %s", name, traceHeader)
	}
	var calls []call
	for err == nil {
		var fields []string
		if fields, err = in.Read(); err != nil {
			break
		}
		line, _ := in.FieldPos(0)
		c, bad := parseCall(fields)
		if bad != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, line, bad)
		}
		c.line = line
		if n := len(calls); n > 0 && c.at.Before(calls[n-1].at) {
			c.at = calls[n-1].at
		}
		calls = append(calls, c)
	}
	var syntax *csv.ParseError
	switch {
	case err == io.EOF:
		return calls, nil
	case errors.As(err, &syntax):
		return nil, fmt.Errorf("%s:%d: %w", name, syntax.Line, syntax.Err)
	}
	return nil, fmt.Errorf("%s: %w", name, err)
}

func parseCall(fields []string) (c call, err error) {
	if len(fields) != 3 {
		return c, fmt.Errorf("%d fields, want %s", len(fields), traceHeader)
	}
	if c.at, err = time.Parse(traceTime, fields[0]); err != nil {
		return c, fmt.Errorf("TIMESTAMP: %.60q is not a time like %s", fields[0], traceTime)
	}
	if c.prompt, err = parseTokens("ContextTokens", fields[1]); err != nil {
		return c, err
	}
	c.output, err = parseTokens("GeneratedTokens", fields[2])
	return c, err
}

func parseTokens(field, s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return 0, fmt.Errorf("%s: %.60q is not a whole number", field, s)
	case err != nil || n < 0 || n > maxTokens:
		return 0, fmt.Errorf("%s: %.60q is outside 0..%d", field, s, maxTokens)
	}
	return n, nil
}
