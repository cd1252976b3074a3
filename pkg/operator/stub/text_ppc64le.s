#include "textflag.h"

// A call that fails sets the summary overflow, and returns the error's number without a sign.
#define START	MOVD (R1), R3; ADD $8, R1, ARGV; SLD $3, R3, ENVP; ADD ARGV, ENVP; ADD $8, ENVP; ADD $-8192, R1, PATH; MOVD PATH, R1
#define A0	R3
#define A1	R4
#define A2	R5
#define A3	R6
#define RESULT	R3
#define ARGV	R14
#define ENVP	R15
#define PATH	R16
#define END	R17
#define NAME	R18
#define TO	R19
#define BYTE_READ	R20
#define NEEDS_MARK	R21

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
#define CALL_KERNEL(number)	MOVD $number, R0; SYSCALL; BVC 2(PC); NEG R3

#define SYS_read	3
#define SYS_write	4
#define SYS_close	6
#define SYS_execve	11
#define SYS_exit	1
#define SYS_openat	286
#define SYS_readlinkat	296

#define O_NONBLOCK	0x800

#include "text.h"
