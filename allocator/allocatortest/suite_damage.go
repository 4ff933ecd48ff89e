package allocatortest

func damageCases() []testCase { return nil }
