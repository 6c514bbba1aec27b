module kohort/clients/go

go 1.22
