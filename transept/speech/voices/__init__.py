"""Known voices: the file of enrolled voices, the embeddings of a recording's speakers, and the matching of the two."""
