// A program with two known vulnerabilities, by the list in testdata/vulndb: it calls one, and the other is in a package that it lacks.
module example.org/vex

go 1.26.0
