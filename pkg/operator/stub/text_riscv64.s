#include "textflag.h"

#define START	MOV (X2), X5; ADD $8, X2, ARGV; SLL $3, X5; ADD X5, ARGV, ENVP; ADD $8, ENVP; MOV $-8192, X5; ADD X5, X2, PATH; MOV PATH, X2
#define A0	X10
#define A1	X11
#define A2	X12
#define A3	X13
#define RESULT	X10
#define ARGV	X8
#define ENVP	X9
#define PATH	X18
#define END	X19
#define NAME	X20
#define TO	X21
#define BYTE_READ	X22
#define NEEDS_MARK	X23

#define DATA4(word)	WORD $word
#define SET(value, to)	MOV $(value), to
#define ADDRESS(offset, to)	MOV $0x400000, to; ADD $offset, to
#define COPY(from, to)	MOV from, to
#define ADD_TO(a, b, to)	ADD a, b, to
#define ADD_CONST(value, to)	MOV $(value), X5; ADD X5, to
#define LOAD_BYTE(offset, at, to)	MOV $(offset), X5; ADD at, X5; MOVBU (X5), to
#define STORE_BYTE(from, at)	MOVB from, (at)
#define IF_LESS(a, value, label)	MOV $value, X5; BLT a, X5, label
#define IF_IS(a, value, label)	MOV $value, X5; BEQ a, X5, label
#define IF_NOT(a, value, label)	MOV $value, X5; BNE a, X5, label
#define GO(label)	BEQ X0, X0, label
#define CALL_KERNEL(number)	MOV $number, X17; ECALL

#define SYS_read	63
#define SYS_write	64
#define SYS_close	57
#define SYS_execve	221
#define SYS_exit	93
#define SYS_openat	56
#define SYS_readlinkat	78

#define O_NONBLOCK	0x800

#include "text.h"
