#include "textflag.h"

// A call that fails sets R7, and returns the error's number without a sign. JMP would be to an absolute address.
#define START	MOVV (R29), R8; ADDVU $8, R29, ARGV; SLLV $3, R8; ADDVU R8, ARGV, ENVP; ADDVU $8, ENVP; ADDVU $-8192, R29, PATH; MOVV PATH, R29
#define A0	R4
#define A1	R5
#define A2	R6
#define A3	R7
#define RESULT	R2
#define ARGV	R16
#define ENVP	R17
#define PATH	R18
#define END	R19
#define NAME	R20
#define TO	R21
#define BYTE_READ	R9
#define NEEDS_MARK	R22

#define DATA4(word)	WORD $word
#define SET(value, to)	MOVV $(value), to
#define ADDRESS(offset, to)	MOVV $0x400000, to; ADDVU $offset, to
#define COPY(from, to)	MOVV from, to
#define ADD_TO(a, b, to)	ADDVU a, b, to
#define ADD_CONST(value, to)	ADDVU $(value), to
#define LOAD_BYTE(offset, at, to)	MOVBU offset(at), to
#define STORE_BYTE(from, at)	MOVB from, (at)
#define IF_LESS(a, value, label)	SGT $value, a, R8; BNE R8, label
#define IF_IS(a, value, label)	MOVV $value, R8; BEQ a, R8, label
#define IF_NOT(a, value, label)	MOVV $value, R8; BNE a, R8, label
#define GO(label)	BEQ R0, R0, label
#define CALL_KERNEL(number)	MOVV $number, R2; SYSCALL; BEQ R7, 2(PC); SUBVU R2, R0, R2

#define SYS_read	5000
#define SYS_write	5001
#define SYS_close	5003
#define SYS_execve	5057
#define SYS_exit	5058
#define SYS_openat	5247
#define SYS_readlinkat	5257

#define O_NONBLOCK	0x80

#include "text.h"
