// Package ports checks the ports of flags, and explains why a port cannot be listened on.
package ports

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/windtunnel/windtunnel/internal/exit"
)

// Taken describes an address in use: the flag that names it, and where /proc can be read the program that listens
// there. It is empty for any other error.
func Taken(err error, args []string) string {
	var listen *net.OpError
	if !errors.Is(err, syscall.EADDRINUSE) || !errors.As(err, &listen) {
		return ""
	}
	at, is := listen.Addr.(*net.TCPAddr)
	if !is {
		return ""
	}
	by := "another program"
	if who := listener(at.Port); who != "" {
		by = who
	}
	port := strconv.Itoa(at.Port)
	for i, arg := range args {
		flag, value, assigned := strings.Cut(arg, "=")
		if !assigned && i+1 < len(args) {
			value = args[i+1]
		}
		if strings.HasPrefix(flag, "-") && (value == port || strings.HasSuffix(value, ":"+port)) {
			return fmt.Sprintf("%s listens on port %s, which %s names", by, port, flag)
		}
	}
	return fmt.Sprintf("%s listens on port %s", by, port)
}

// listener returns the name and the id of the process that listens on a TCP port, "" where that cannot be found.
func listener(port int) string {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line) // sl, local, remote, state (0A: listening), …, inode
			if len(f) < 10 || f[3] != "0A" || !strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				continue
			}
			fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
			for _, fd := range fds {
				if to, err := os.Readlink(fd); err == nil && to == "socket:["+f[9]+"]" {
					process := filepath.Dir(filepath.Dir(fd))
					name, _ := os.ReadFile(process + "/comm")
					return fmt.Sprintf("%s (process %s)", bytes.TrimSpace(name), filepath.Base(process))
				}
			}
		}
	}
	return ""
}

// Check returns an error unless the ports of flags, nil where left out, are numbers of ports.
func Check(flags map[string]*int) error {
	for flag, port := range flags {
		if port != nil && (*port < 0 || *port > 65535) {
			return exit.Errorf(exit.Usage, "%s: found %d; expected 0 to 65535", flag, *port)
		}
	}
	return nil
}
