// The program of a stub, which is not run where it is linked: stub.go cuts it out and puts it behind a header of its own. It uses no memory but
// the stack, and reads what stub.go has put at fixed addresses. Each architecture's file says what the capital words mean.

#define EXE		0xC0	// "/proc/self/exe"
#define NAMES		0xD0	// the names of the files to run, the first first, each with a zero byte; an empty one ends them
#define MESSAGE		0x100
#define MESSAGE_LEN	256
#define HEAD		4352	// on the stack, behind the path
#define MARK		HEAD+12
#define IS_STUB		0xF5
#define IS_WHOLE	0xF6

TEXT ·text(SB), NOSPLIT|NOFRAME, $0
	// stub.go looks for these words.
	DATA4(0xC9C9C9C9); DATA4(0xB0B0B0B0); DATA4(0xC5C5C5C5); DATA4(0xA1A1A1A1)

	// PATH is where this file is, with a / at its end. START makes room for it on the stack, out of the linker's sight: it would ask for a check.
	START
	SET(-100, A0)	// AT_FDCWD
	ADDRESS(EXE, A1)
	COPY(PATH, A2)
	SET(4000, A3)
	CALL_KERNEL(SYS_readlinkat)
	IF_LESS(RESULT, 1, fail)
	IF_LESS(RESULT, 4000, whole)	// else it may have been cut
	GO(fail)
whole:
	ADD_TO(PATH, RESULT, END)
slash:
	ADD_CONST(-1, END)
	LOAD_BYTE(0, END, BYTE_READ)
	IF_NOT(BYTE_READ, 47, slash)
	ADD_CONST(1, END)

	// Anything but a stub is run by the first name, which an upgrade by hand may have; by another name only a cnibox that is marked.
	ADDRESS(NAMES, NAME)
	SET(0, NEEDS_MARK)
next:
	LOAD_BYTE(0, NAME, BYTE_READ)
	IF_IS(BYTE_READ, 0, fail)
	COPY(END, TO)
letter:
	LOAD_BYTE(0, NAME, BYTE_READ)
	STORE_BYTE(BYTE_READ, TO)
	ADD_CONST(1, NAME)
	ADD_CONST(1, TO)
	IF_NOT(BYTE_READ, 0, letter)

	SET(-100, A0)
	COPY(PATH, A1)
	SET(O_NONBLOCK, A2)
	SET(0, A3)
	CALL_KERNEL(SYS_openat)
	IF_LESS(RESULT, 0, other)
	COPY(RESULT, TO)
	COPY(PATH, A1)
	ADD_CONST(MARK, A1)
	SET(0, BYTE_READ)	// of the file before
	STORE_BYTE(BYTE_READ, A1)
	COPY(TO, A0)
	COPY(PATH, A1)
	ADD_CONST(HEAD, A1)
	SET(16, A2)
	CALL_KERNEL(SYS_read)
	COPY(TO, A0)
	CALL_KERNEL(SYS_close)
	LOAD_BYTE(MARK, PATH, BYTE_READ)
	IF_IS(BYTE_READ, IS_STUB, other)
	IF_IS(NEEDS_MARK, 0, run)
	IF_NOT(BYTE_READ, IS_WHOLE, other)
	LOAD_BYTE(HEAD, PATH, BYTE_READ)
	IF_NOT(BYTE_READ, 127, other)	// ELF begins so
run:
	COPY(PATH, A0)
	COPY(ARGV, A1)
	COPY(ENVP, A2)
	CALL_KERNEL(SYS_execve)
other:
	SET(1, NEEDS_MARK)
	GO(next)

fail:
	SET(1, A0)
	ADDRESS(MESSAGE, A1)
	SET(MESSAGE_LEN, A2)
	CALL_KERNEL(SYS_write)
	SET(1, A0)
	CALL_KERNEL(SYS_exit)

	DATA4(0xA1A1A1A1); DATA4(0xC5C5C5C5); DATA4(0xB0B0B0B0); DATA4(0xC9C9C9C9)
	RET
