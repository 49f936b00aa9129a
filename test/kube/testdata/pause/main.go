// Command pause holds a pod's namespaces.
package main

import (
	"os/signal"
	"syscall"

	"os"
)

func main() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM)
	<-c
}
