import asyncio, sys, time
from pathlib import Path
import structlog
structlog.configure(logger_factory=structlog.PrintLoggerFactory(open("/tmp/demo-try.log","w")))
from kargo_py.demo.running import tell, cast, PACE
from kargo_py.demo.screens import screen
t=time.time()
d=Path("/tmp/demo-dir"); d.mkdir(exist_ok=True)
async def main():
    with screen() as s:
        async with cast(Path(sys.argv[1]), PACE) as c:
            await tell(c, d, s)
asyncio.run(main())
print(time.time()-t)
