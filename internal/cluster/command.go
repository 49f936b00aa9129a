package cluster

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// The first byte of a command says whose it is. Commands with mayIgnore set may
// be passed over by a node too old to know them; any other unknown command
// stops the node, since going on would make its state differ from the others'.
const (
	cmdNoop   byte = 0 // changes nothing: a barrier that the state machine sees
	cmdUser   byte = 1 // the caller's, for Machine.Apply
	cmdMember byte = 2 // JSON memberRecord: what is known of a member
	cmdForget byte = 3 // the rest is the id of a member to forget
	cmdFormat byte = 4 // uvarint: the format of the command; the rest is as cmdUser's

	mayIgnore byte = 0x80
	cmdCheck       = mayIgnore | 1 // hash the state as it is
)

var (
	errEmptyCommand   = errors.New("cluster: empty command")
	errUnknownCommand = errors.New("cluster: command of a newer version: upgrade this node")
)

// memberRecord is the replicated knowledge about a member beside raft's own.
type memberRecord struct {
	ID      string `json:"id"`
	GRPC    string `json:"grpc,omitempty"`
	HTTP    string `json:"http,omitempty"`
	Version string `json:"version,omitempty"`
	Format  uint64 `json:"format,omitempty"`  // Config.Format; 0 is 1
	Voter   bool   `json:"voter,omitempty"`   // it shall vote once it has caught up
	Removed bool   `json:"removed,omitempty"` // taken out by hand: it may not come back by itself
}

func memberCommand(r memberRecord) []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and booleans
	}
	return append([]byte{cmdMember}, b...)
}

func forgetCommand(id string) []byte { return append([]byte{cmdForget}, id...) }

// command is a decoded log entry.
type command struct {
	kind   byte
	user   []byte       // cmdUser, cmdFormat
	format uint64       // cmdFormat
	member memberRecord // cmdMember
	forget string       // cmdForget
}

func decodeCommand(b []byte) (command, error) {
	if len(b) == 0 {
		return command{}, errEmptyCommand
	}
	c := command{kind: b[0]}
	switch rest := b[1:]; {
	case c.kind == cmdNoop || c.kind&mayIgnore != 0:
	case c.kind == cmdUser:
		c.user = rest
	case c.kind == cmdFormat:
		f, n := binary.Uvarint(rest)
		if n <= 0 {
			return c, errors.New("cluster: command without a format")
		}
		c.format, c.user = f, rest[n:]
	case c.kind == cmdMember:
		if err := json.Unmarshal(rest, &c.member); err != nil {
			return c, fmt.Errorf("cluster: member record: %w", err)
		}
		if c.member.ID == "" {
			return c, errors.New("cluster: member record without an id")
		}
	case c.kind == cmdForget:
		if len(rest) == 0 {
			return c, errors.New("cluster: forget without an id")
		}
		c.forget = string(rest)
	default:
		return c, errUnknownCommand
	}
	return c, nil
}

// applyMember carries out cmdMember and cmdForget.
func applyMember(tx *bbolt.Tx, c command) error {
	if c.kind == cmdForget {
		return deleteOwn(tx, membersBucket, []byte(c.forget))
	}
	v, err := json.Marshal(c.member)
	if err != nil {
		return err
	}
	return putOwn(tx, membersBucket, []byte(c.member.ID), v)
}
