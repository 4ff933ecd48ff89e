package allocatortest

import "github.com/stint-go/stint/allocator"

func poolCases() []testCase   { return nil }
func raceCases() []testCase   { return nil }
func damageCases() []testCase { return nil }

var _ allocator.Store
