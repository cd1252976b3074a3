// Command empty is a Go program that does nothing: what starting any Go program costs.
package main

func main() {}
