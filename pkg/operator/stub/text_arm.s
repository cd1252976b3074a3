#include "textflag.h"

// A constant that is no byte, shifted by an even number of bits, would stand behind the function (R15-relative), where it is not cut out.
#define START	MOVW (R13), R0; ADD $4, R13, ARGV; ADD R0<<2, ARGV, ENVP; ADD $4, ENVP; MOVW R13, PATH; SUB $8192, PATH; MOVW PATH, R13
#define A0	R0
#define A1	R1
#define A2	R2
#define A3	R3
#define RESULT	R0
#define ARGV	R4
#define ENVP	R5
#define PATH	R6
#define END	R8
#define NAME	R9
#define TO	R12
#define BYTE_READ	R3
#define NEEDS_MARK	R14

#define DATA4(word)	WORD $word
#define SET(value, to)	MOVW $(value), to
#define ADDRESS(offset, to)	MOVW $0x400000, to; ADD $offset, to
#define COPY(from, to)	MOVW from, to
#define ADD_TO(a, b, to)	ADD a, b, to
#define ADD_CONST(value, to)	ADD $(value), to
#define LOAD_BYTE(offset, at, to)	ADD $((offset)&~255), at, to; MOVBU ((offset)&255)(to), to
#define STORE_BYTE(from, at)	MOVB from, (at)
#define IF_LESS(a, value, label)	CMP $value, a; BLT label
#define IF_IS(a, value, label)	CMP $value, a; BEQ label
#define IF_NOT(a, value, label)	CMP $value, a; BNE label
#define GO(label)	B label
#define CALL_KERNEL(number)	MOVW $(number&~255), R7; ADD $(number&255), R7; SWI $0

#define SYS_read	3
#define SYS_write	4
#define SYS_close	6
#define SYS_execve	11
#define SYS_exit	1
#define SYS_openat	322
#define SYS_readlinkat	332

#define O_NONBLOCK	0x800

#include "text.h"
