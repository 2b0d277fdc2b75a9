module carina

go 1.22
