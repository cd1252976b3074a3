#include "textflag.h"

#define START	MOVD (R15), R1; ADD $8, R15, ARGV; SLD $3, R1; ADD R1, ARGV, ENVP; ADD $8, ENVP; ADD $-8192, R15, PATH; MOVD PATH, R15
#define A0	R2
#define A1	R3
#define A2	R4
#define A3	R5
#define RESULT	R2
#define ARGV	R6
#define ENVP	R7
#define PATH	R8
#define END	R9
#define NAME	R12
#define TO	R14
#define BYTE_READ	R5
#define NEEDS_MARK	g

#define DATA4(word)	WORD $word
#define SET(value, to)	MOVD $(value), to
#define ADDRESS(offset, to)	MOVD $0x400000, to; ADD $offset, to
#define COPY(from, to)	MOVD from, to
#define ADD_TO(a, b, to)	ADD a, b, to
#define ADD_CONST(value, to)	ADD $(value), to
#define LOAD_BYTE(offset, at, to)	MOVBZ offset(at), to
#define STORE_BYTE(from, at)	MOVB from, (at)
#define IF_LESS(a, value, label)	CMP a, $value; BLT label
#define IF_IS(a, value, label)	CMP a, $value; BEQ label
#define IF_NOT(a, value, label)	CMP a, $value; BNE label
#define GO(label)	BR label
#define CALL_KERNEL(number)	MOVD $number, R1; SYSCALL

#define SYS_read	3
#define SYS_write	4
#define SYS_close	6
#define SYS_execve	11
#define SYS_exit	1
#define SYS_openat	288
#define SYS_readlinkat	298

#define O_NONBLOCK	0x800

#include "text.h"
