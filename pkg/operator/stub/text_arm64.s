#include "textflag.h"

#define START	MOVD (RSP), R9; ADD $8, RSP, ARGV; ADD R9<<3, ARGV, ENVP; ADD $8, ENVP; MOVD RSP, PATH; SUB $8192, PATH; MOVD PATH, RSP
#define A0	R0
#define A1	R1
#define A2	R2
#define A3	R3
#define RESULT	R0
#define ARGV	R19
#define ENVP	R20
#define PATH	R21
#define END	R22
#define NAME	R23
#define TO	R24
#define BYTE_READ	R25
#define NEEDS_MARK	R26

#define DATA4(word)	WORD $word
#define SET(value, to)	MOVD $(value), to
#define ADDRESS(offset, to)	MOVD $0x400000, to; ADD $offset, to
#define COPY(from, to)	MOVD from, to
#define ADD_TO(a, b, to)	ADD a, b, to
#define ADD_CONST(value, to)	ADD $(value), to
#define LOAD_BYTE(offset, at, to)	MOVBU offset(at), to
#define STORE_BYTE(from, at)	MOVB from, (at)
#define IF_LESS(a, value, label)	CMP $value, a; BLT label
#define IF_IS(a, value, label)	CMP $value, a; BEQ label
#define IF_NOT(a, value, label)	CMP $value, a; BNE label
#define GO(label)	B label
#define CALL_KERNEL(number)	MOVD $number, R8; SVC

#define SYS_read	63
#define SYS_write	64
#define SYS_close	57
#define SYS_execve	221
#define SYS_exit	93
#define SYS_openat	56
#define SYS_readlinkat	78

#define O_NONBLOCK	0x800

#include "text.h"
