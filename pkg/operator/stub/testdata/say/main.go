// Command say says which file it is, and how it was called.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	self, _ := os.Executable()
	fmt.Printf("%s: %s %s\n", filepath.Base(self), strings.Join(os.Args, " "), strings.Join(os.Environ(), " "))
}
