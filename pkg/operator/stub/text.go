package stub

// text is the program of a stub, in this architecture's assembler. It is cut out of cnictl's file, and never called.
func text()
