package blame

import (
	"fmt"
	"strconv"
	"strings"
)

// Bounds of a range. git leaves its expressions to the C library, whose memory grows
// with what repetitions stand for, and whose time with back references.
const (
	maxRange       = 256 // bytes
	maxRepetitions = 1000
)

// checkRanges refuses ranges that git must not be given. Whether a range fits the
// file, git says.
func checkRanges(ranges []string) error {
	if len(ranges) > MaxRanges {
		return &InvalidError{fmt.Sprintf("%d ranges are more than the limit of %d", len(ranges), MaxRanges)}
	}
	for _, r := range ranges {
		if r == "" || len(r) > maxRange || strings.IndexByte("0123456789,/^:", r[0]) < 0 || strings.ContainsAny(r, "\x00\n") {
			return &InvalidError{fmt.Sprintf(`range %.*q must be of the form "10,20", "10,+5", "/from/,/to/" or ":function" and of at most %d bytes`, maxRange, r, maxRange)}
		}
		if !tame(r) {
			return &InvalidError{fmt.Sprintf("the expression in range %q has back references, or repetitions that are too large", r)}
		}
	}
	return nil
}

// tame reports whether the expressions in a range are harmless.
func tame(r string) bool {
	repetitions := 1
	for i := 0; i+1 < len(r); i++ {
		if r[i] != '\\' {
			continue
		}
		i++
		if '1' <= r[i] && r[i] <= '9' {
			return false
		}
		if r[i] != '{' {
			continue
		}
		counts, _, _ := strings.Cut(r[i+1:], `\}`)
		most := 2 // of a repetition without an end
		for n := range strings.SplitSeq(counts, ",") {
			if n == "" {
				continue
			}
			count, err := strconv.Atoi(n)
			if err != nil {
				return false
			}
			most = max(most, count)
		}
		if most > maxRepetitions {
			return false
		}
		if repetitions *= most; repetitions > maxRepetitions {
			return false
		}
	}
	return true
}
