// Package sealed adds a checksum to a JSON object, in the object itself, so that a bit that flips on the
// disk is found where the file is read.
package sealed

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// field begins the last member of a sealed object: the SHA-256 of all bytes before it.
const field = `,"checksum":"`

// Marshal returns an object, which has members, as JSON with its checksum, in a line.
func Marshal(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	body := bytes.TrimSuffix(text, []byte("}"))
	if len(body) == len(text) || len(body) < 2 {
		return nil, errors.New("sealed: not an object with members")
	}
	sum := sha256.Sum256(body)
	return fmt.Appendf(body, "%s%x\"}\n", field, sum), nil
}

// ErrDamaged is returned for an object that is not as it was written.
var ErrDamaged = errors.New("the file was changed or is damaged: it has another checksum")

// Unmarshal reads what Marshal wrote. An object without a checksum, of an older version, is read too.
func Unmarshal(text []byte, v any) error {
	if i := bytes.LastIndex(text, []byte(field)); i >= 0 {
		sum := sha256.Sum256(text[:i])
		if string(text[i+len(field):]) != hex.EncodeToString(sum[:])+"\"}\n" {
			return ErrDamaged
		}
	}
	return json.Unmarshal(text, v)
}
