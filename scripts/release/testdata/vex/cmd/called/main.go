package main

import "container/ring"

func main() { ring.New(1) }
