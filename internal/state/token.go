package state

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// AllNamespaces, among a token's namespaces, stands for every one.
const AllNamespaces = "*"

// Role is what a token lets its bearer do.
type Role string

// The roles. Each of the first three may do what those before it may.
const (
	Viewer    Role = "viewer"    // look
	Submitter Role = "submitter" // submit jobs and data, and look after its own jobs
	Admin     Role = "admin"     // everything in its namespaces; in all of them, also the cluster
	WorkerBot Role = "worker"    // what workers call, where they have no certificates
	BackupBot Role = "backup"    // make a backup; from format 2 on
)

// Token is a bearer token as it is remembered: by its hash.
type Token struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"` // of the user
	Role       Role      `json:"role"`
	Namespaces []string  `json:"namespaces"`
	Hash       string    `json:"hash"` // SHA-256 of the secret, in hex
	Created    time.Time `json:"created"`
	Expires    time.Time `json:"expires,omitzero"`
	Revoked    time.Time `json:"revoked,omitzero"`
	CreatedBy  string    `json:"created_by,omitempty"`
}

// Live reports whether a token is valid at t.
func (k *Token) Live(t time.Time) bool {
	return k.Revoked.IsZero() && (k.Expires.IsZero() || t.Before(k.Expires))
}

// Bounds of what is remembered of tokens.
const (
	maxTokens    = 10_000
	forgetTokens = 30 * 24 * time.Hour // after their end
)

// ErrToken is returned for a token that does not exist.
var ErrToken = errors.New("there is no such token")

// GetToken returns a token, or ErrToken.
func GetToken(tx *bbolt.Tx, id string) (*Token, error) {
	var k Token
	ok, err := getJSON(tx, tokensBucket, id, &k)
	if err == nil && !ok {
		err = ErrToken
	}
	return &k, err
}

// Rules reports whether it is that of an administrator of all namespaces, and valid.
func (k *Token) Rules(t time.Time) bool {
	return k.Role == Admin && slices.Contains(k.Namespaces, AllNamespaces) && k.Live(t)
}

// Tokens calls f with every token, until it returns false.
func Tokens(tx *bbolt.Tx, f func(*Token) bool) error { return each(tx, tokensBucket, f) }

// CreateToken makes a token.
type CreateToken struct{ Token }

func (c *CreateToken) format() uint64 {
	if c.Role == BackupBot {
		return 2
	}
	return 0 // any
}

func (c *CreateToken) apply(x *transaction) (*Job, error) {
	if err := c.check(x.Tx); err != nil {
		return nil, err
	}
	count := 0
	var old []string
	err := Tokens(x.Tx, func(k *Token) bool {
		count++
		end := k.Expires
		if !k.Revoked.IsZero() {
			end = k.Revoked
		}
		if !end.IsZero() && x.time.Sub(end) > forgetTokens {
			old = append(old, k.ID)
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	for _, id := range old {
		if err := deleteKey(x.Tx, tokensBucket, id); err != nil {
			return nil, err
		}
	}
	if count-len(old) >= maxTokens {
		return nil, fmt.Errorf("%w: there are %d tokens", ErrQuota, count)
	}
	return nil, putJSON(x.Tx, tokensBucket, c.ID, &c.Token)
}

// check returns an error for what cannot be a new token.
func (k *Token) check(tx *bbolt.Tx) error {
	if err := CheckName(k.Name); err != nil {
		return err
	}
	if k.ID == "" || len(k.Hash) != 64 || len(k.Namespaces) == 0 || !slices.Contains([]Role{Viewer, Submitter, Admin, WorkerBot, BackupBot}, k.Role) {
		return ErrMalformed
	}
	for _, n := range k.Namespaces {
		if n == AllNamespaces {
			continue
		}
		if _, _, err := GetNamespace(tx, n); err != nil {
			return fmt.Errorf("%w: %q", err, n)
		}
	}
	if _, err := GetToken(tx, k.ID); !errors.Is(err, ErrToken) {
		return fmt.Errorf("%w: the id %s is taken", ErrMalformed, k.ID)
	}
	return nil
}

// RevokeToken ends a token's validity.
type RevokeToken struct {
	ID string `json:"id"`
	// Spare refuses to end that of the last administrator.
	Spare bool `json:"spare,omitempty"`
}

func (r *RevokeToken) format() uint64 {
	if r.Spare {
		return 3
	}
	return 0 // any
}

func (r *RevokeToken) apply(x *transaction) (*Job, error) {
	k, err := GetToken(x.Tx, r.ID)
	if err != nil || !k.Revoked.IsZero() {
		return nil, err
	}
	if r.Spare && k.Rules(x.time) {
		others := false
		err := Tokens(x.Tx, func(o *Token) bool {
			others = o.ID != r.ID && o.Rules(x.time)
			return !others
		})
		if err != nil {
			return nil, err
		}
		if !others {
			return nil, conflictf("%s is the last token of an administrator of all namespaces: make another one first", r.ID)
		}
	}
	k.Revoked = x.time
	return nil, putJSON(x.Tx, tokensBucket, r.ID, k)
}

// SetNodeKey sets the secret by which coordinators know each other where they
// have no certificates.
type SetNodeKey struct {
	Key string `json:"key"`
}

// nodeKey is where it is kept.
const nodeKey = "node"

func (k *SetNodeKey) apply(x *transaction) (*Job, error) {
	return nil, putJSON(x.Tx, secretsBucket, nodeKey, k)
}

// GetNodeKey returns the coordinators' key, empty if there is none yet.
func GetNodeKey(tx *bbolt.Tx) (string, error) {
	var k SetNodeKey
	_, err := getJSON(tx, secretsBucket, nodeKey, &k)
	return k.Key, err
}
