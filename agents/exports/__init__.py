"""Episodes for the tools of others: viewers, trainers and validators that read formats of their own."""
