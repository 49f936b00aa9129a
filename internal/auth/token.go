package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// A token is uls_ID_SECRET: its id, which is no secret and names it in lists and
// logs, and 256 random bits.
const (
	tokenPrefix = "uls_"
	idLen       = 10
	secretBytes = 32
)

// NewToken returns a new token's text and its id.
func NewToken() (text, id string) {
	id = strings.ToLower(rand.Text()[:idLen])
	var secret [secretBytes]byte
	rand.Read(secret[:])
	return tokenPrefix + id + "_" + base64.RawURLEncoding.EncodeToString(secret[:]), id
}

// ParseToken returns the id of a token, or an error if the text cannot be one.
func ParseToken(text string) (id string, err error) {
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	id, secret, two := strings.Cut(rest, "_")
	b, bad := base64.RawURLEncoding.Strict().DecodeString(secret)
	if !ok || !two || len(id) != idLen || bad != nil || len(b) != secretBytes || strings.ContainsFunc(id, notInID) || strings.ContainsAny(secret, "\r\n") {
		return "", errors.New("this is not a token of ulisse: they begin with " + tokenPrefix)
	}
	return id, nil
}

func notInID(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }

// Hash returns what is kept of a token. Its 256 random bits make a slow hash
// needless.
func Hash(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}

// matches compares a token with what is kept of it, in constant time.
func matches(k *state.Token, text string) bool { return same(k.Hash, Hash(text)) }

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
