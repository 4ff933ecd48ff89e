//go:build !unix

package main

import (
	"errors"
	"os"
)

var errNoStop = errors.New("this system can't stop a process and let it go on")

func signalStop(*os.Process) error     { return errNoStop }
func signalContinue(*os.Process) error { return errNoStop }
