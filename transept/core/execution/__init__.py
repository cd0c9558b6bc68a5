"""The execution side: what turns a step's SequenceGroupMetadata into token ids."""
