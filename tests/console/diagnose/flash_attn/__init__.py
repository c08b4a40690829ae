raise OSError("./flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC1ENS_14SourceLocationESs")
