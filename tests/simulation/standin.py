from __future__ import annotations
import asyncio, copy, json
from types import SimpleNamespace
from kargo_py.local.apiserver.failures import Failure, not_found, conflict, already_exists
from kargo_py.local.apiserver.wire import Response, Stream, encode
from tests.local.memory import _admitted, json_patched, merged
from kargo_py.kube.errors import Invalid
KINDS={"applications":"Application","promotions":"Promotion","stages":"Stage","freights":"Freight","events":"Event","namespaces":"Namespace"}
class StandIn:
    def __init__(self, *, now, random=None):
        self.now=now; self.version=1; self.objects={}; self.log=[]; self.observers=[]; self.news=[]; self.oldest=0
    async def __aenter__(self): return self
    async def __aexit__(self,*a): pass
    def forget(self): self.oldest=self.version
    def record(self, type_, plural, key, old, new):
        self.version+=1
        obj=copy.deepcopy(new if new is not None else old)
        obj["metadata"]["resourceVersion"]=str(self.version)
        if new is None: del self.objects[plural,key]
        else: self.objects[plural,key]=obj
        self.log.append((self.version,type_,plural,key,obj))
        for o in self.observers: o(self.version,type_,obj,old)
        news,self.news=self.news,[]
        for f in news:
            if not f.done(): f.set_result(None)
        return obj
    async def handle(self, request):
        try: return await self._handle(request)
        except Failure as f: return f.response()
        except Invalid as e: return Failure(422,"Invalid",e.message).response()
    async def _handle(self, r):
        parts=r.path.strip("/").split("/")
        core=parts[0]=="api"
        group="" if core else parts[1]
        av=parts[1] if core else f"{parts[1]}/{parts[2]}"
        rest=parts[2:] if core else parts[3:]
        ns=""
        if rest[0]=="namespaces" and len(rest)>2: ns,rest=rest[1],rest[2:]
        plural,name,sub=(rest+["",""])[:3]
        kind=KINDS[plural]
        if not name:
            if r.method=="POST":
                obj=json.loads(r.body); name=obj["metadata"]["name"]; key=(ns,name)
                if (plural,key) in self.objects: raise already_exists(group,plural,name)
                obj["metadata"]|={"namespace":ns,"uid":f"00000000-0000-4000-8000-{self.version+1:012d}","generation":1,"creationTimestamp":self.now().strftime("%Y-%m-%dT%H:%M:%SZ")}
                obj={**obj,"apiVersion":av,"kind":kind}
                if kind!="Application" : obj.pop("status",None)
                return Response(201,encode(self.record("ADDED",plural,key,None,_admitted(obj))))
            if r.parameter("watch"):
                rv=int(r.parameter("resourceVersion") or 0)
                if rv<self.oldest: raise Failure(410,"Expired","too old resource version")
                return Stream(200,self.lines(plural,ns,rv,int(r.parameter("timeoutSeconds") or 300)))
            items=[o for (p,k),o in sorted(self.objects.items()) if p==plural and ns in ("",k[0])]
            return Response(200,encode({"apiVersion":av,"kind":kind+"List","metadata":{"resourceVersion":str(self.version)},"items":items}))
        key=(ns,name); old=self.objects.get((plural,key))
        if old is None: raise not_found(group,plural,name)
        if r.method=="GET": return Response(200,encode(old))
        if r.method=="DELETE":
            self.record("DELETED",plural,key,old,None); return Response(200,encode({"kind":"Status","status":"Success"}))
        patch=json.loads(r.body)
        t=r.headers.get("content-type")
        if kind!="Application" and t.startswith("application/merge"):
            if sub=="status": patch={k:v for k,v in patch.items() if k=="status"}|{"metadata":{k:v for k,v in (patch.get("metadata") or {}).items() if k=="resourceVersion"}}
            else: patch={k:v for k,v in patch.items() if k!="status"}
        new=merged(old,patch) if t.startswith("application/merge") else json_patched(old,patch)
        if new["metadata"].get("resourceVersion") not in (None,old["metadata"]["resourceVersion"]): raise conflict(group,plural,name,"the object has been modified")
        new["metadata"]["resourceVersion"]=old["metadata"]["resourceVersion"]
        new=_admitted(new)
        if new==old: return Response(200,encode(old))
        c=lambda o:{k:v for k,v in o.items() if k!="metadata" and (k!="status" or kind=="Application")}
        if c(new)!=c(old): new["metadata"]["generation"]+=1
        return Response(200,encode(self.record("MODIFIED",plural,key,old,new)))
    async def lines(self, plural, ns, rv, timeout):
        loop=asyncio.get_running_loop(); until=loop.time()+timeout; i=0
        while True:
            while i<len(self.log):
                v,t,p,k,o=self.log[i]; i+=1
                if v>rv and p==plural and ns in ("",k[0]): yield encode({"type":t,"object":o})+b"\n"
            f=loop.create_future(); self.news.append(f)
            try:
                async with asyncio.timeout_at(until): await f
            except TimeoutError: return
