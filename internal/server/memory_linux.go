package server

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memory returns the bytes of memory that this process may use: the machine's, the
// least limit of its control groups, and those of its address space and its data.
func memory() int64 {
	most := int64(math.MaxInt64)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		most = int64(info.Totalram) * int64(info.Unit)
	}
	for _, limit := range []int{unix.RLIMIT_AS, unix.RLIMIT_DATA} {
		var l unix.Rlimit
		if unix.Getrlimit(limit, &l) == nil && l.Cur < uint64(most) {
			most = int64(l.Cur)
		}
	}
	if text, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		most = min(most, groupLimit("/sys/fs/cgroup", string(text)))
	}
	if most == math.MaxInt64 {
		return 0
	}
	return most
}

// mostFiles returns how many files and connections this process may have open; 0 if that is not known.
func mostFiles() int {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil || l.Cur > math.MaxInt32 {
		return 0
	}
	return int(l.Cur)
}

// groupLimit returns the least limit of memory of the control groups (version 2) that
// a process is in, of which /proc/PID/cgroup tells.
func groupLimit(root, groups string) int64 {
	most := int64(math.MaxInt64)
	for line := range strings.Lines(groups) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for path = filepath.Join("/", path); ; path = filepath.Dir(path) {
			text, err := os.ReadFile(filepath.Join(root, path, "memory.max"))
			if n, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && bad == nil {
				most = min(most, n)
			}
			if path == "/" {
				break
			}
		}
	}
	return most
}
