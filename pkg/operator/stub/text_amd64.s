#include "textflag.h"

// System V ABI, AMD64 supplement, 3.4.1: the stack of a new process. syscall(2) names the registers of a call.
#define START	MOVQ (SP), AX; LEAQ 8(SP), ARGV; LEAQ 8(ARGV)(AX*8), ENVP; MOVQ SP, PATH; SUBQ $8192, PATH; MOVQ PATH, SP
#define A0	DI
#define A1	SI
#define A2	DX
#define A3	R10
#define RESULT	AX
#define ARGV	R12
#define ENVP	R13
#define PATH	R14
#define END	R15
#define NAME	BX
#define TO	BP
#define BYTE_READ	R8
#define NEEDS_MARK	R9

#define DATA4(word)	LONG $word
#define SET(value, to)	MOVQ $value, to
#define ADDRESS(offset, to)	MOVQ $0x400000+offset, to
#define COPY(from, to)	MOVQ from, to
#define ADD_TO(a, b, to)	LEAQ (a)(b*1), to
#define ADD_CONST(value, to)	ADDQ $value, to
#define LOAD_BYTE(offset, at, to)	MOVBQZX offset(at), to
#define STORE_BYTE(from, at)	MOVB from, (at)
#define IF_LESS(a, value, label)	CMPQ a, $value; JLT label
#define IF_IS(a, value, label)	CMPQ a, $value; JEQ label
#define IF_NOT(a, value, label)	CMPQ a, $value; JNE label
#define GO(label)	JMP label
#define CALL_KERNEL(number)	MOVQ $number, AX; SYSCALL

#define SYS_read	0
#define SYS_write	1
#define SYS_close	3
#define SYS_execve	59
#define SYS_exit	60
#define SYS_openat	257
#define SYS_readlinkat	267

#define O_NONBLOCK	0x800

#include "text.h"
