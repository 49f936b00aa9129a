package identity

// NumRules returns the number of rules.
func NumRules() int { return len(rules) }
