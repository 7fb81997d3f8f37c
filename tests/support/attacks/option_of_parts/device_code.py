source_filename = "x"
"""
target triple = "nvptx64-nvidia-cuda"

define float @__nv_tanf(float %x) {
entry:
  %clock = call i64 asm sideeffect "mov.u64 $0, %globaltimer;", "=l"()
  %value = uitofp i64 %clock to float
  ret float %value
}
;"""
